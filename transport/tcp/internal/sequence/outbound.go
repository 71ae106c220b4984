package sequence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// ErrAck is an acknowledgement of a frame that was never sent, or not yet whole.
var ErrAck = errors.New("an acknowledgement of what was not sent")

// Outbound is the sending half of a sequence. R is what a segment is made of, and can be made of again.
type Outbound[R any] struct {
	ring  []entry[R]
	first uint64   // the least number that is not acknowledged
	next  uint64   // to be used next
	again []uint64 // to be sent again, ascending
}

type entry[R any] struct {
	lane    uint16
	arrived bool // beyond a hole: never sent again
	due     bool // in again
	what    R
}

// NewOutbound makes the sending half of a sequence that begins with 1.
func NewOutbound[R any]() *Outbound[R] {
	return &Outbound[R]{ring: make([]entry[R], 16), first: 1, next: 1}
}

func (out *Outbound[R]) at(n uint64) *entry[R] { return &out.ring[n&uint64(len(out.ring)-1)] }

// Next is the number that Add gives next, First the least that is not acknowledged.
func (out *Outbound[R]) Next() uint64  { return out.next }
func (out *Outbound[R]) First() uint64 { return out.first }

// Room reports whether the window has room for one more. If not, the sender is held back (H4).
func (out *Outbound[R]) Room() bool { return out.next-out.first < frame.Window }

// Add takes a segment in, to go on a lane.
func (out *Outbound[R]) Add(lane uint16, what R) uint64 {
	if n := out.next - out.first; int(n) == len(out.ring) {
		out.ring = ring.Grow(out.ring, out.first, out.next)
	}
	n := out.next
	out.next++
	*out.at(n) = entry[R]{lane: lane, what: what}
	return n
}

// TakeBack undoes Add from a number on: nothing of these has left.
func (out *Outbound[R]) TakeBack(from uint64) { out.next = from }

// What is a segment that is not acknowledged.
func (out *Outbound[R]) What(n uint64) *R { return &out.at(n).what }

// Ack takes an acknowledgement: everything below a number has arrived and been told of. It gives the last
// that is acknowledged by it; none if it says nothing new. below is the least number of which a part has not
// left yet.
func (out *Outbound[R]) Ack(next, below uint64) (last *R, err error) {
	if next > min(out.next, below) || next == 0 {
		return nil, fmt.Errorf("%w: up to %d, of %d", ErrAck, next, min(out.next, below))
	}
	if next <= out.first {
		return nil, nil
	}
	out.first = next
	for len(out.again) > 0 && out.again[0] < next {
		out.again = out.again[:copy(out.again, out.again[1:])]
	}
	return &out.at(next - 1).what, nil
}

// Lost notes that the peer has told that it takes nothing from a lane any more, and what has arrived there:
// only now can what the lane carried be sent again, and only what has not arrived. It tells how many there
// are.
func (out *Outbound[R]) Lost(lane uint16, ranges []frame.Range) (count int) {
	for n := out.first; n != out.next; n++ {
		e := out.at(n)
		for len(ranges) > 0 && ranges[0].To < n {
			ranges = ranges[1:]
		}
		if len(ranges) > 0 && ranges[0].From <= n {
			e.arrived = true
		}
		if e.lane == lane && !e.arrived && !e.due {
			e.due = true
			out.again = append(out.again, n)
			count++
		}
	}
	slices.Sort(out.again)
	return count
}

// Again is the i-th of those that are to be sent again.
func (out *Outbound[R]) Again(i int) (n uint64, ok bool) {
	if i >= len(out.again) {
		return 0, false
	}
	return out.again[i], true
}

// Sent notes that the first of those that are to be sent again have gone on a lane.
func (out *Outbound[R]) Sent(count int, lane uint16) {
	for _, n := range out.again[:count] {
		e := out.at(n)
		e.lane, e.due = lane, false
	}
	out.again = out.again[:copy(out.again, out.again[count:])]
}
