package channel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	lineSize = 64 // the unit of a ring: a cache line

	flagBytes   = 16 // head and tail flag of a message
	headerBytes = 8  // credit, kind
	bodyAt      = 8 + headerBytes
	wordSize    = 8
	overhead    = flagBytes + headerBytes

	// creditLines are reserved for CREDIT alone. At most six can be unread at once
	// (docs/internals/spec/channel.md).
	creditLines = 6
	// controlLines are kept free of data for control messages, besides creditLines.
	controlLines = 6
	// dataReserve is the number of lines that data leaves free.
	dataReserve = controlLines + creditLines

	// Slot sizes of the first phase, and of the others, in bytes (E1, E8).
	minSmall, maxSmall = 100, 2000
	minLarge, maxLarge = 1000, 200_000
	maxPhases          = 8

	// RingSlots is the number of messages of the slot size that a ring holds, before minLines and
	// maxSmallLines.
	RingSlots = 8
	minLines  = 64 // so that a ring of tiny slots has room besides dataReserve
)

// Policy says which element of a vector determines the slot size to request, when an element does not fit
// (E2).
type Policy uint8

const (
	FirstOversized Policy = iota // the first element that does not fit
	LargestElement               // the largest of the vector
	SumOversized                 // all that do not fit, added up
)

// Config configures a rank's channels. All ranks of a job have the same phases.
type Config struct {
	// Phases are the slot sizes, including flags, in bytes: first the small slots with which a channel
	// starts, then those to which it can grow, each larger than the one before (E9). A single phase may have
	// large slots: its channels have large buffers from the start. Empty means DefaultPhases.
	Phases []int
	// Threshold: an element with more bytes asks for larger slots. It applies to the first phase only; 0
	// means what a slot carries. ThresholdPercent (80 to 99) sets it instead as a percentage of the slot, in
	// every phase (E2).
	Threshold        int
	ThresholdPercent int
	Policy           Policy
	// Whole moves a vector with an oversized element through the larger slots from its first element on;
	// otherwise the elements before the oversized one go first (E4).
	Whole bool
	// KeepSmall keeps the ring of the first phase for the messages that fit its slots, in every phase: the
	// other phases add a ring with larger slots for the messages that do not (E6). All ranks of a job must
	// agree on it.
	KeepSmall bool
	// TailLooks is how often one call polls for the tail of a resize reply whose head has arrived, before it
	// returns with nothing transferred and no error (E7); at most MaxTailLooks. 0 means DefaultTailLooks.
	TailLooks int
	// BusyPolling says that this rank has its own core and polls while it waits. In a channel over shared
	// memory, short messages then use only the first lines of a large ring, as long as the peer releases
	// those in time (window.go).
	BusyPolling bool
	// Budget bounds the buffers of all the channels that share it (E10); nil for no bound.
	Budget *Budget
}

// DefaultTailLooks takes about a hundred nanoseconds, in which the rest of a line arrives.
const (
	DefaultTailLooks = 64
	MaxTailLooks     = 1_000_000
)

// DefaultPhases is 5 KiB of ring at first, and slots of 16 KiB when messages need them (E1, E8).
var DefaultPhases = []int{640, 16384}

// ParsePhases parses a list of slot sizes such as 640,16384. Check validates them.
func ParsePhases(text string) ([]int, error) {
	var phases []int
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a slot size in bytes; want a list such as 640,16384", field)
		}
		phases = append(phases, n)
	}
	return phases, nil
}

// Check returns an error for an invalid configuration.
func (c Config) Check() error {
	phases := c.phases()
	if len(phases) > maxPhases {
		return fmt.Errorf("%d phases; at most %d are possible", len(phases), maxPhases)
	}
	for i, slot := range phases {
		low, high, which := minSmall, maxSmall, "first"
		switch {
		case i > 0:
			low, high, which = minLarge, maxLarge, "later"
		case len(phases) == 1 && !c.KeepSmall: // a channel that never grows may be large from the start
			high, which = maxLarge, "only"
		}
		switch {
		case slot < low || slot > high:
			return fmt.Errorf("phase %d: a slot of %d bytes; the %s ones have from %d to %d", i+1, slot,
				which, low, high)
		case i > 0 && slot <= phases[i-1]:
			return fmt.Errorf("phase %d: a slot of %d bytes after one of %d; each phase must have larger "+
				"ones", i+1, slot, phases[i-1])
		}
	}
	switch {
	case c.Threshold != 0 && c.ThresholdPercent != 0:
		return errors.New("a threshold both in bytes and in per cent")
	case c.Threshold < 0 || c.Threshold > phases[0]-overhead:
		return fmt.Errorf("a threshold of %d bytes: a slot of %d carries %d", c.Threshold, phases[0],
			phases[0]-overhead)
	case c.ThresholdPercent != 0 && (c.ThresholdPercent < 80 || c.ThresholdPercent > 99):
		return fmt.Errorf("a threshold of %d %%; 80 to 99 are possible", c.ThresholdPercent)
	case c.TailLooks < 0 || c.TailLooks > MaxTailLooks:
		return fmt.Errorf("%d looks at a tail; 1 to %d are possible", c.TailLooks, MaxTailLooks)
	case c.Policy > SumOversized:
		return fmt.Errorf("policy %d; there are 0 to %d", c.Policy, SumOversized)
	}
	if need := 2 * geometry(phases, 0).region(); c.Budget != nil && c.Budget.limit < need {
		return fmt.Errorf("a budget of %d bytes: one channel needs %d to begin with", c.Budget.limit, need)
	}
	return nil
}

func (c Config) phases() []int {
	if len(c.Phases) == 0 {
		return DefaultPhases
	}
	return c.Phases
}

func (c Config) tailLooks() int {
	if c.TailLooks == 0 {
		return DefaultTailLooks
	}
	return c.TailLooks
}

// limit returns the largest element that is sent in a slot of a phase: the threshold, or what the slot
// carries.
func (c Config) limit(phase, slot int) int {
	switch {
	case c.ThresholdPercent > 0:
		return slot * c.ThresholdPercent / 100
	case c.Threshold > 0 && phase == 0:
		return c.Threshold
	}
	return slot - overhead
}
