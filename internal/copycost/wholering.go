package copycost

import "time"

const (
	// dearKiB is what a copy takes for each KiB into lines for which a core waits.
	dearKiB = 60 * time.Nanosecond
	// wholeGain is at most how long copies may take that go through the whole of a large ring, in per cent of
	// those that keep to its first lines.
	wholeGain = 70
	// windowsTried is after how many windows of samples the large ring is tried: the first one has copies to
	// new memory.
	windowsTried = 2
	// windowsProven is in how many it must prove better, again and again.
	windowsProven = 4
	// windowsWaited is how many pass until a ring that does not become large is given up.
	windowsWaited = 64
	// windowsKept is how many pass until first lines that were no worse are doubted: a host may have moved
	// the cores apart.
	windowsKept = 256
)

// WholeRing decides whether long messages go through all of a large ring, by what copies into
// the ring take. On some processors they take a third of the time then: whoever writes a line that the other
// core holds waits for it, and the cores hold little of a large ring. Its zero value keeps to the first
// lines.
type WholeRing struct {
	state   ringState
	known   bool          // copies have gone through a large ring, when the latest window ended
	windows int           // of samples since the ring proved better, or state or known has changed
	before  time.Duration // what copies took before the large ring
}

type ringState uint8

const (
	ringUnknown ringState = iota
	ringFirst             // the first lines are no worse, as far as is known
	ringTried             // the whole ring is used, and may prove worse
	ringWhole
)

// Use reports whether messages go through the whole ring.
func (w *WholeRing) Use() bool { return w.state >= ringTried }

// Trying reports whether copies may take longer than they will, as they go to new memory.
func (w *WholeRing) Trying() bool { return w.state == ringTried }

// each returns one of how many copies is to be sampled.
func (w *WholeRing) each() uint32 {
	switch w.state {
	case ringUnknown:
		return 1
	case ringTried:
		return intervalTried
	}
	return interval
}

// Note notes what copies of a KiB into the ring took in a window of samples, whether they have gone through a
// large ring before, and whether they may now.
func (w *WholeRing) Note(each time.Duration, known, may bool) {
	w.windows++
	switch w.state {
	case ringUnknown, ringFirst:
		tried := windowsTried
		if w.state == ringFirst {
			tried = windowsKept
		}
		switch {
		case w.windows < tried:
		case each >= dearKiB && may:
			*w = WholeRing{state: ringTried, before: each}
		default:
			*w = WholeRing{state: ringFirst}
		}
	case ringTried, ringWhole:
		switch {
		case known != w.known:
			w.known, w.windows = known, 0
		case known && each*100 <= w.before*wholeGain:
			w.state, w.windows = ringWhole, 0
		case known && w.windows >= windowsProven || w.windows >= windowsWaited && w.state == ringTried:
			*w = WholeRing{state: ringFirst}
		}
	}
}
