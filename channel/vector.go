package channel

import (
	"errors"

	"github.com/weft-mpi/weft/transport"
)

// Vector is a data transfer vector on its way: what a sender hands over, and how far it has got (E2).
type Vector struct {
	Elems [][]byte
	next  int // the first element that has not been transferred
}

// Done tells whether all elements have been transferred.
func (v *Vector) Done() bool { return v.next == len(v.Elems) }

// Front is the first element that has not been transferred. It must not be called when there is none.
func (v *Vector) Front() []byte { return v.Elems[v.next] }

// Skip takes the front element as transferred by other means.
func (v *Vector) Skip() { v.advance(v.next + 1) }

// Finish takes all of the vector as transferred.
func (v *Vector) Finish() { v.next = len(v.Elems) }

// advance goes on at an element; empty ones that follow are through too, so that nothing comes behind a vector's last byte.
func (v *Vector) advance(to int) {
	for v.next = to; v.next < len(v.Elems) && len(v.Elems[v.next]) == 0; {
		v.next++
	}
}

// Outcome says why a transfer stopped.
type Outcome uint8

const (
	Done      Outcome = iota // the vector is through
	Moved                    // some elements went; call again for the rest
	Waiting                  // nothing went: credits, the send queue, or larger slots have to come first. No error; call again
	Oversized                // nothing went, and never will in slots: the front element is for rendezvous
)

// Room is the largest element that goes into a slot of the present phase behind a head of the layer above: what the slot carries, or the
// threshold if that is less. Before Open it is less than 0.
func (c *Channel) Room(head int) int { return min(c.send.limit, c.send.most-head) }

// Settled goes on with a change of phase, if one is under way, and tells whether messages can be sent. While they cannot, that counts as a
// transfer of nothing.
func (c *Channel) Settled() (bool, error) {
	if !c.paused {
		return c.state == StateOpen, nil
	}
	if err := c.settle(); err != nil || c.paused {
		c.stats.ZeroTransfers++
		return false, err
	}
	return true, nil
}

// Transfer moves the leading elements of a vector that fit one slot, behind a head of the layer above, as one message; it tells how
// many bytes of elements went (E2, E5). An element above the threshold asks for larger slots: when it is the first, that is all that
// happens, nothing is transferred and there is no error (E3); when it comes later, those before it go now, and it is the first of the
// next call (E4). Transfer never blocks. An error is of the queue pair, which is broken then, or of the peer.
func (c *Channel) Transfer(v *Vector, k Kind, head []byte, more bool) (n int, o Outcome, err error) {
	s := &c.send
	if ready, err := c.Settled(); !ready {
		return 0, Waiting, err
	}
	room := c.Room(len(head))
	if c.conf.Whole {
		if o, err := c.Enlarge(v, len(head)); o == Waiting {
			return 0, Waiting, err
		}
	}
	used, last := len(head), v.next
	for last < len(v.Elems) && len(v.Elems[last]) <= room && used+len(v.Elems[last]) <= s.most {
		used += len(v.Elems[last])
		last++
	}
	if last == v.next && !v.Done() {
		o, err := c.Enlarge(v, len(head))
		return 0, o, err
	}
	body := c.Reserve(used)
	for body == nil && last-v.next > 1 && !c.paused { // until the credits are full (E2)
		last--
		used -= len(v.Elems[last])
		body = c.Reserve(used)
	}
	if body == nil {
		return 0, Waiting, nil
	}
	at := copy(body, head)
	for _, e := range v.Elems[v.next:last] {
		at += copy(body[at:], e)
	}
	if err := c.Commit(k, more); err != nil {
		if errors.Is(err, transport.ErrQueueFull) {
			err = nil
		}
		return 0, Waiting, err
	}
	v.advance(last)
	if v.Done() {
		return used - len(head), Done, nil
	}
	return used - len(head), Moved, nil
}

// Enlarge asks for the slots that a vector needs whose front element does not fit the present ones: a transfer of nothing, Waiting,
// without an error (E3). When no phase has them, or they have been refused, the outcome is Oversized.
func (c *Channel) Enlarge(v *Vector, head int) (Outcome, error) {
	if ready, err := c.Settled(); !ready {
		return Waiting, err
	}
	for {
		phase := c.phaseForRest(v, head)
		if phase < 0 {
			return Oversized, nil
		}
		if err := c.want(phase); err != nil || c.paused {
			c.stats.ZeroTransfers++
			return Waiting, err
		}
		// There is no memory for it here: that phase is out of the question from now on.
	}
}

// phaseForRest is the phase to ask for on behalf of what is left of a vector, by the policy; -1 if nothing is oversized, or no phase has slots
// for it.
func (c *Channel) phaseForRest(v *Vector, head int) int {
	first, largest, sum, room := 0, 0, 0, c.Room(head)
	for _, e := range v.Elems[v.next:] {
		if largest = max(largest, len(e)); len(e) > room {
			sum += len(e)
			if first == 0 {
				first = len(e)
			}
		}
	}
	if first == 0 {
		return -1
	}
	size := [...]int{FirstOversized: first, LargestElement: largest, SumOversized: sum}[c.conf.Policy]
	phase := c.phaseFor(size, head)
	if phase < 0 {
		phase = c.phaseFor(first, head) // at least that one
	}
	return phase
}
