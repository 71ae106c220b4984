package sequence

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// ErrAck is the error of an acknowledgement of a frame that was not sent completely.
var ErrAck = errors.New("an acknowledgement of what was not sent")

// Outbound is the sending half of a sequence. R is the information from which a frame can be made again.
type Outbound[R any] struct {
	ring  []entry[R]
	first uint64   // the smallest unacknowledged number
	next  uint64   // the next number to use
	again []uint64 // to be resent, ascending
}

type entry[R any] struct {
	lane    uint16
	arrived bool // beyond a hole: never resent
	due     bool // in again
	what    R
}

// NewOutbound makes the sending half of a sequence that begins with 1.
func NewOutbound[R any]() *Outbound[R] {
	return &Outbound[R]{ring: make([]entry[R], 16), first: 1, next: 1}
}

func (out *Outbound[R]) at(n uint64) *entry[R] { return &out.ring[n&uint64(len(out.ring)-1)] }

// Next returns the number that Add will assign, First the smallest unacknowledged number.
func (out *Outbound[R]) Next() uint64  { return out.next }
func (out *Outbound[R]) First() uint64 { return out.first }

// Room reports whether the window has room for another frame. If not, the sender must wait (H4).
func (out *Outbound[R]) Room() bool { return out.next-out.first < frame.Window }

// Add assigns a number to a frame that will be sent on a lane.
func (out *Outbound[R]) Add(lane uint16, what R) uint64 {
	if n := out.next - out.first; int(n) == len(out.ring) {
		out.ring = ring.Grow(out.ring, out.first, out.next)
	}
	n := out.next
	out.next++
	*out.at(n) = entry[R]{lane: lane, what: what}
	return n
}

// TakeBack undoes Add for the numbers from from on: none of their frames was sent.
func (out *Outbound[R]) TakeBack(from uint64) { out.next = from }

// What returns the information of an unacknowledged frame.
func (out *Outbound[R]) What(n uint64) *R { return &out.at(n).what }

// Ack handles an acknowledgement: everything below next has arrived and been delivered. It returns the last
// frame that is newly acknowledged, or nil. below is the smallest number of a frame that was sent only in
// part.
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

// Resend handles the peer's report that it no longer reads a lane, and of the ranges that have arrived: it
// queues the frames of that lane that have not arrived for resending.
func (out *Outbound[R]) Resend(lane uint16, ranges []frame.Range) {
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
		}
	}
	slices.Sort(out.again)
}

// Again returns the i-th number to be resent.
func (out *Outbound[R]) Again(i int) (n uint64, ok bool) {
	if i >= len(out.again) {
		return 0, false
	}
	return out.again[i], true
}

// Sent notes that the first count numbers to be resent were sent on a lane.
func (out *Outbound[R]) Sent(count int, lane uint16) {
	for _, n := range out.again[:count] {
		e := out.at(n)
		e.lane, e.due = lane, false
	}
	out.again = out.again[:copy(out.again, out.again[count:])]
}
