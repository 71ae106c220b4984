// Package copycost is the model of how bytes move best between two processes of a host. There are two ways.
// Through memory that both have mapped a byte is copied twice, and its line goes from core to core in
// between. By a system call that reads the other process's memory it is copied once, but the call takes time
// before its first byte. Processors differ in both by a factor of five, and the first changes while a program
// runs, if a host moves the cores of a virtual machine apart. So the numbers are measured, and everything
// that depends on them follows from them here.
package copycost

import (
	"fmt"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/sharedcopy"
)

// Costs are the numbers between two processes, as in transport.CopyCosts. A zero field stands for that of
// Default.
type Costs struct{ Call, CallKiB, MappedKiB, RewriteKiB time.Duration }

// Default has the numbers that hold until they are measured: those of an AMD EPYC (family 26) in a virtual
// machine whose cores are far apart.
var Default = Costs{Call: 2300 * time.Nanosecond, CallKiB: 65 * time.Nanosecond,
	MappedKiB: 205 * time.Nanosecond, RewriteKiB: 20 * time.Nanosecond}

// ForcesMapped and ForcesCall are the numbers of no processor: with them every message for which both ways
// exist goes through mapped memory, or by the system call.
var (
	ForcesMapped = Costs{Call: time.Second, CallKiB: 1, MappedKiB: 1}
	ForcesCall   = Costs{Call: 1, CallKiB: 1, MappedKiB: time.Second}
)

// startPrefix precedes numbers that hold only until they are measured.
const startPrefix = "from:"

// Parse parses three or all four durations, such as 950ns,65ns,40ns, in the order of the fields. With from:
// before them they are only a start: they hold until they are measured.
func Parse(text string) (c Costs, start bool, err error) {
	text, start = strings.CutPrefix(text, startPrefix)
	f := strings.Split(text, ",")
	if len(f) < 3 || len(f) > 4 {
		return c, start, fmt.Errorf("%q has %d durations, not 3 or 4", text, len(f))
	}
	for i, d := range []*time.Duration{&c.Call, &c.CallKiB, &c.MappedKiB, &c.RewriteKiB}[:len(f)] {
		if *d, err = time.ParseDuration(strings.TrimSpace(f[i])); err != nil || *d <= 0 {
			return c, start, fmt.Errorf("%q is not a duration such as 500ns, above 0", f[i])
		}
	}
	return c, start, nil
}

const (
	// announced is how much longer an announced message takes, besides the call, than one that comes through
	// mapped memory: its sender's wait, and the look-up of its key.
	announced = 300 * time.Nanosecond
	// Of both copies' time, overlapped is what a fragment takes while each process copies one, in per cent:
	// half, and the wait for the other's lines.
	overlapped = 62
	// MinAwaited is a length up to which no processor gains by the call.
	MinAwaited = 2 << 10
	// MaxMapped is the longest message that goes through mapped memory. The pages of a longer one are huge,
	// so that a single copy gets quicker.
	MaxMapped = 128 << 10

	// MaxStreamed is the longest message of a stream that goes through mapped memory. Of the system calls for
	// longer ones, the time to the first byte is a small part.
	MaxStreamed = 64 << 10

	minFragment = 8 << 10
	maxFragment = 24 << 10
	// eachFragment is what a fragment takes besides its copies.
	eachFragment = 200 * time.Nanosecond

	// slowKiB is what a copy takes for each KiB into lines for which a core waits, and verySlowKiB into those
	// of a core with which it shares no cache.
	slowKiB     = 60 * time.Nanosecond
	verySlowKiB = 250 * time.Nanosecond
	// farSignals is how much longer two such cores wait before and after one reads the other's memory.
	farSignals = 500 * time.Nanosecond
)

// Fragment returns the greatest length of the fragments in which a message of n bytes goes through mapped
// memory, so that one process copies a fragment in while the other copies the one before out. Each takes time
// besides its copies, so a message has few of them.
func Fragment(n int) int {
	return min(max((n/3+63)&^63, minFragment), maxFragment)
}

// Or returns the numbers, and those of d in place of zero ones.
func (c Costs) Or(d Costs) Costs {
	for _, f := range [...][2]*time.Duration{
		{&c.Call, &d.Call}, {&c.CallKiB, &d.CallKiB}, {&c.MappedKiB, &d.MappedKiB},
		{&c.RewriteKiB, &d.RewriteKiB},
	} {
		if *f[0] <= 0 {
			*f[0] = *f[1]
		}
	}
	return c
}

// Awaited returns the length up to which a message for which the receiver waits should go through mapped
// memory, in fragments if it is longer than one.
func (c Costs) Awaited() int {
	c = c.Or(Default)
	call := c.Call + announced
	whole := kib(call, c.MappedKiB-c.CallKiB)
	if whole <= minFragment {
		return max(whole, MinAwaited)
	}
	// The first copy of the first fragment, and the last copy of the last one, overlap with nothing.
	each := c.overlapped(1) + eachFragment/(maxFragment>>10)
	alone := c.MappedKiB - each
	n := max(minFragment, kib(call-alone*(minFragment>>10), each-c.CallKiB))
	if n < sharedcopy.Min {
		return n
	}
	// Each process makes a call of its own, and copies a half.
	return max(sharedcopy.Min-1, kib(call-alone*(maxFragment>>10), each-c.CallKiB/2))
}

// InPieces reports whether a vector goes faster from one process to the other in pieces through mapped memory
// than by a system call, if both processes are ready for it: one copies a piece in while the other copies the
// one before out, or each copies a half of a long vector by its own call. If it does, so do vectors of that
// length that both send each other: their copies overlap less, but then a call copies each of them whole.
func (c Costs) InPieces(n, piece int) bool {
	c = c.Or(Default)
	kib, whole := time.Duration(n>>10), time.Duration(min(n, piece)>>10)
	before, single := c.Call+announced, c.CallKiB*kib
	if c.RewritesVerySlowly() {
		before += farSignals
	}
	if n >= sharedcopy.Min {
		single /= 2
	}
	return c.MappedKiB*whole+c.overlapped(kib-whole) <= before+single
}

// MaxPiece is the length of the longest piece between two processes.
const MaxPiece = 32 << 10

// Pieces returns the length up to which vectors go faster in pieces: 16 KiB times a power of two, at most
// MaxMapped, or 0.
func (c Costs) Pieces(piece int) (n int) {
	for next := 16 << 10; next <= MaxMapped && c.InPieces(next, piece); next *= 2 {
		n = next
	}
	return n
}

// RewritesSlowly reports whether a core waits for lines to which it writes if another one has read them.
func (c Costs) RewritesSlowly() bool { return slow(c.Or(Default).RewriteKiB) }

// RewritesVerySlowly reports whether it waits for lines of a core with which it shares no cache.
func (c Costs) RewritesVerySlowly() bool { return c.Or(Default).RewriteKiB >= verySlowKiB }

// overlapped returns what so many KiB take through mapped memory while both processes copy.
func (c Costs) overlapped(kib time.Duration) time.Duration {
	return c.MappedKiB * kib * overlapped / 100
}

// Streamed returns the length up to which messages of a stream should go through mapped memory: each process
// copies one while the other copies another.
func (c Costs) Streamed() int {
	c = c.Or(Default)
	return min(kib(c.Call, c.overlapped(1)-c.CallKiB), MaxStreamed)
}

// Staged returns the number of bytes up to which the owner of memory should copy it to memory that the other
// process has mapped, while that process waits.
func (c Costs) Staged() int { return c.staged(1) }

// StagedByBoth is Staged if both processes do so at the same time, so that neither waits longer.
func (c Costs) StagedByBoth() int { return c.staged(2) }

// staged is Staged if it saves so many calls. The other process has read the lines of that memory. The copy
// out is about half of both copies.
func (c Costs) staged(calls time.Duration) int {
	c = c.Or(Default)
	return kib(calls*c.Call, max(c.MappedKiB, c.RewriteKiB+c.MappedKiB/2)-c.CallKiB)
}

// kib returns the number of bytes, at most MaxMapped, for which a way that takes longer by more for each KiB
// makes up for t.
func kib(t, more time.Duration) int {
	switch {
	case t <= 0:
		return 0
	case more <= 0 || t >= more*(MaxMapped>>10):
		return MaxMapped
	}
	return int(t * 1024 / more)
}
