package channel

import "encoding/binary"

// Vector is a data transfer vector in progress: what a sender passed, and how far the transfer has got (E2).
type Vector struct {
	Elems [][]byte
	next  int // the first element that has not been transferred
}

// Done reports whether all elements have been transferred.
func (v *Vector) Done() bool { return v.next == len(v.Elems) }

// Front returns the first element that has not been transferred. It must not be called if there is none.
func (v *Vector) Front() []byte { return v.Elems[v.next] }

// Skip marks the front element as transferred by other means.
func (v *Vector) Skip() { v.advance(v.next + 1) }

// Finish marks all of the vector as transferred.
func (v *Vector) Finish() { v.next = len(v.Elems) }

// advance continues at an element. It skips empty elements, so that nothing remains after a vector's last
// byte.
func (v *Vector) advance(to int) {
	for v.next = to; v.next < len(v.Elems) && len(v.Elems[v.next]) == 0; {
		v.next++
	}
}

// Outcome says why a transfer stopped.
type Outcome uint8

const (
	// Done: the whole vector has been transferred.
	Done Outcome = iota
	// Moved: some elements went; call again for the rest.
	Moved
	// Waiting: nothing went. Credits, room in the send queue, or larger slots are needed first. This is not
	// an error; call again.
	Waiting
	// Oversized: nothing went. The front element will never fit a slot; for TrySendWhole, several elements
	// together will not.
	Oversized
)

// MaxElement returns the largest element that fits a slot of the current phase after an upper-layer header of
// head bytes, such as an envelope: what the slot carries, or the threshold if that is less. Before Open it is
// negative.
func (c *Channel) MaxElement(head int) int { return min(c.send.maxElement, c.send.maxAnyBody-head) }

// TrySend moves the leading elements that fit one slot of a channel, after the upper-layer header head, as
// one message. It returns how many bytes of elements went (E2, E5). An element above the threshold asks for
// larger slots. If it is the first, TrySend does only that: it transfers nothing and returns no error (E3).
// If it comes later, the elements before it go now, and it is the first of the next call (E4). TrySend never
// blocks. An error comes from the queue pair, which is then broken, or from the peer.
func (v *Vector) TrySend(c *Channel, k Kind, head []byte, flags SendFlags) (n int, o Outcome, err error) {
	s := &c.send
	if ready, err := c.resizeDone(); !ready {
		return 0, Waiting, err
	}
	room := c.MaxElement(len(head))
	if c.conf.Whole {
		if o, err := c.growFor(v, len(head)); o == Waiting {
			return 0, Waiting, err
		}
	}
	used, last := len(head), v.next
	for last < len(v.Elems) && len(v.Elems[last]) <= room && used+len(v.Elems[last]) <= s.maxAnyBody {
		used += len(v.Elems[last])
		last++
	}
	if last == v.next && !v.Done() {
		o, err := c.growFor(v, len(head))
		return 0, o, err
	}
	body := c.reserve(used, dataReserve)
	for body == nil && last-v.next > 1 && !c.paused { // until the credits are used up (E2)
		last--
		used -= len(v.Elems[last])
		body = c.reserve(used, dataReserve)
	}
	return v.commit(c, last, k, body, head, flags)
}

// TrySendWhole sends all of the vector, after the upper-layer header head, as one message that fits one slot.
// The outcome is never Moved. A single element above the threshold asks for larger slots, as with TrySend.
func (v *Vector) TrySendWhole(c *Channel, k Kind, head []byte, flags SendFlags) (n int, o Outcome,
	err error) {
	if ready, err := c.resizeDone(); !ready {
		return 0, Waiting, err
	}
	for _, e := range v.Elems[v.next:] {
		n += len(e)
	}
	if n > c.MaxElement(len(head)) {
		if len(v.Elems)-v.next > 1 {
			return 0, Oversized, nil
		}
		o, err := c.growFor(v, len(head))
		return 0, o, err
	}
	body := c.reserve(len(head)+n, dataReserve)
	if body != nil && len(head) == wordSize && len(v.Elems)-v.next <= 1 &&
		v.writeReserved(c, k, head, flags) {
		return n, Done, nil
	}
	return v.commit(c, len(v.Elems), k, body, head, flags)
}

// writeReserved sends the reserved message, of head and at most one element, as an inline write, which needs
// no page of the mirror; false if that is not possible.
func (v *Vector) writeReserved(c *Channel, k Kind, head []byte, flags SendFlags) bool {
	s := &c.send
	var payload []byte
	if !v.Done() {
		payload = v.Front()
	}
	free, lines, body := s.freeAhead, s.reserved, s.body
	s.freeAhead = max(free, lines)
	sent := false
	if c.inlineWrites && lines > 0 {
		sent, _ = c.TrySend(k, binary.LittleEndian.Uint64(head), payload, flags|flagInlineOnly)
	}
	if !sent {
		s.freeAhead, s.reserved, s.body = free, lines, body
		return false
	}
	v.Finish()
	return true
}

// commit sends head and the elements up to last in the reserved body, which is nil if there was no
// room.
func (v *Vector) commit(c *Channel, last int, k Kind, body, head []byte, flags SendFlags) (int, Outcome,
	error) {
	if body == nil {
		return 0, Waiting, nil
	}
	at := copy(body, head)
	for _, e := range v.Elems[v.next:last] {
		at += copy(body[at:], e)
	}
	if err := c.commit(k, flags&FlagMore != 0); err != nil {
		return 0, Waiting, ignoreQueueFull(err)
	}
	v.advance(last)
	if v.Done() {
		return at - len(head), Done, nil
	}
	return at - len(head), Moved, nil
}

// resizeDone continues a change of phase, if one is in progress, and reports whether messages can be sent. If
// not, the call counts as a transfer of nothing.
func (r *resizer) resizeDone() (bool, error) {
	if !r.paused {
		return r.c.state == StateOpen, nil
	}
	if err := r.progressResize(); err != nil || r.paused {
		r.c.stats.ZeroTransfers++
		return false, err
	}
	return true, nil
}

// growFor requests slots for a vector whose front element does not fit the present ones: a transfer of
// nothing, Waiting, without an error (E3). If no phase has such slots, or they were refused, the outcome is
// Oversized.
func (r *resizer) growFor(v *Vector, head int) (Outcome, error) {
	for {
		phase := r.phaseFor(v, head)
		if phase < 0 {
			return Oversized, nil
		}
		if err := r.requestPhase(phase); err != nil || r.paused {
			r.c.stats.ZeroTransfers++
			return Waiting, err
		}
		// There is no memory for it here: this phase counts as refused from now on.
	}
}

// phaseFor returns the phase to request for the rest of a vector, by the policy; -1 if nothing is oversized,
// or no phase has slots for it.
func (r *resizer) phaseFor(v *Vector, head int) int {
	first, largest, sum, room := 0, 0, 0, r.c.MaxElement(head)
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
	size := [...]int{FirstOversized: first, LargestElement: largest, SumOversized: sum}[r.c.conf.Policy]
	phase := r.phaseForSize(size, head)
	if phase < 0 {
		phase = r.phaseForSize(first, head) // at least that one
	}
	return phase
}
