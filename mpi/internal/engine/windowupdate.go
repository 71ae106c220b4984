package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/transport"
)

// The caller executes an accumulate on a mapped part by atomics. Otherwise it sends UPDATE messages of up to
// 512 bytes to the target's engine, which answers each by UPDATED. The engine uses the same atomics, so both
// ways are atomic with respect to each other. Messages keep the order of calls.

// outbox has the messages that wait for credits at a peer: this rank's UPDATEs, and UPDATEDs for the peer's.
type outbox struct {
	waiting []*windowMessage
	first   int
	results int // number of UPDATEDs
}

// windowMessage is an UPDATE or UPDATED to send. If it does not fit a slot, its first bytes are sent in PART
// messages, and the rest in the message itself. The messages to a peer are sent one after another, so PARTs
// of two messages do not mix.
type windowMessage struct {
	kind   channel.Kind
	length int
	sent   int // bytes that have gone in PARTs
	body   [rma.UpdateHeader + rma.MaxUpdate]byte
	next   *windowMessage
}

// maxResults bounds the UPDATEDs that wait for a peer: a correct peer has no more operations posted.
const maxResults = maxOneSided

var (
	errRefused = fmt.Errorf("%w: the target has no such element in the window", ErrRequest)
	errStuck   = fmt.Errorf("%w: another rank holds the lock of the target's elements, and "+
		"does not release it", ErrProcFailed)
)

func (o *outbox) empty() bool { return o.first == len(o.waiting) }

func (w *Windows) newMessage(k channel.Kind) *windowMessage {
	m := w.free
	if m == nil {
		m = &windowMessage{}
	} else {
		w.free = m.next
	}
	m.kind, m.length, m.sent = k, 0, 0
	return m
}

// send sends a message now, or when there is room for it.
func (w *Windows) send(p *peer, m *windowMessage) {
	p.outbox.waiting = append(p.outbox.waiting, m)
	if m.kind == channel.Updated {
		p.outbox.results++
	}
	w.sendWaiting(p)
}

// sendWaiting sends what there is room for; a later pass sends the rest.
func (w *Windows) sendWaiting(p *peer) {
	o := &p.outbox
	for !o.empty() {
		if p.state != peerOpen {
			return
		}
		m := o.waiting[o.first]
		kind, b := m.kind, m.body[m.sent:m.length]
		if room := p.ch.MaxBody(); len(b) > room {
			kind, b = channel.Part, b[:min(room, len(b)-wordBytes)]
		}
		sent, err := p.ch.TrySend(kind, binary.LittleEndian.Uint64(b), b[wordBytes:], 0)
		if err != nil {
			w.e.failures.failPeer(p, err)
			return
		}
		if !sent {
			w.e.progress.deferPeer(p)
			return
		}
		if kind == channel.Part {
			m.sent += len(b)
			continue
		}
		o.waiting[o.first] = nil
		o.first++
		if m.kind == channel.Updated {
			o.results--
		}
		m.next, w.free = w.free, m
	}
	o.waiting, o.first = o.waiting[:0], 0
}

// Update starts an accumulate: each element from the offset on becomes old op src, atomically per element.
// old, if not nil, gets the old values; for rma.Swap the element changes only if it equals compare. src may
// be reused at once, old when the operation is complete.
func (t *Target) Update(src, old, compare []byte, at int, op rma.Code, s *Canceller) error {
	return t.update(src, old, compare, at, op, nil, s)
}

func (t *Target) update(src, old, compare []byte, at int, op rma.Code, r *request, s *Canceller) error {
	e := t.w.e
	if t.Control.at.Load() == nil {
		e.mu.Lock()
		p, err := t.reachLocked(s)
		if err != nil || t.Control.at.Load() == nil {
			if err == nil {
				err = t.askUpdateLocked(p, src, old, compare, at, op, r, s)
			}
			e.mu.Unlock()
			return err
		}
		e.mu.Unlock()
	}
	lock := (*rma.Lock)(unsafe.Add(unsafe.Pointer(t.Control.at.Load()), wordElements))
	if t.rank == e.rank && !t.w.typ.IsWord() {
		t.w.changing.Lock()
		defer t.w.changing.Unlock()
	}
	if !t.w.typ.Update(unsafe.Add(t.Base(), at), src, old, compare, op, lock) {
		return errStuck
	}
	return nil
}

// askUpdateLocked sends the UPDATEs of an accumulate. It releases the lock while there is no room.
func (t *Target) askUpdateLocked(p *peer, src, old, compare []byte, at int, op rma.Code, r *request,
	s *Canceller) error {
	t.w.e.mu.assertHeld()
	size := t.w.typ.Size
	maxPart := (rma.MaxUpdate - len(compare)) / size * size
	for len(src) > 0 {
		n := min(len(src), maxPart)
		o, err := t.newOperationLocked(p, s)
		if err != nil {
			return err
		}
		if o.asked = true; r != nil {
			o.request = r
			r.openTransfers++
		}
		if old != nil {
			o.into, old = old[:n], old[n:]
		}
		t.sendUpdateLocked(p, o, src[:n], compare, at, op)
		src, at = src[n:], at+n
	}
	return nil
}

func (t *Target) sendUpdateLocked(p *peer, o *oneSided, src, compare []byte, at int, op rma.Code) {
	t.w.e.mu.assertHeld()
	m := t.w.e.Windows.newMessage(channel.Update)
	u := rma.Update{Window: t.w.id, Generation: o.generation, Number: uint32(o.index), Op: op,
		Fetch: o.into != nil, Offset: t.position(at), Data: compare}
	b := append(u.Append(m.body[:0]), src...)
	m.length = len(b)
	t.w.e.Windows.send(p, m)
}

// FetchUpdate is Update of one element, and waits for the old value. If s ends first, the element may still
// be changed.
func (t *Target) FetchUpdate(src, old, compare []byte, at int, op rma.Code, s *Canceller) error {
	e := t.w.e
	if t.Control.at.Load() != nil {
		return t.Update(src, old, compare, at, op, s)
	}
	e.mu.Lock()
	p, err := t.reachLocked(s)
	if err != nil || t.Control.at.Load() != nil {
		e.mu.Unlock()
		if err != nil {
			return err
		}
		return t.Update(src, old, compare, at, op, s)
	}
	defer e.mu.Unlock()
	o, err := t.newOperationLocked(p, s)
	if err != nil {
		return err
	}
	o.kept, o.asked, o.into = true, true, old
	t.sendUpdateLocked(p, o, src, compare, at, op)
	if !o.done {
		e.mu.Unlock()
		err = e.waiting.waitUnless(s, o.ended)
		e.mu.Lock()
		if err != nil && !o.done {
			o.kept, o.givenUp, o.into = false, true, nil
			return err
		}
	}
	err = o.err
	t.dropLocked(o)
	return err
}

// onPart stores bytes of an UPDATE or UPDATED until that arrives.
func (w *Windows) onPart(p *peer, body []byte) error {
	if len(p.windowParts)+len(body) > rma.UpdateHeader+rma.MaxUpdate {
		return fmt.Errorf("%w: PARTs of more than %d bytes", transport.ErrProtocol,
			rma.UpdateHeader+rma.MaxUpdate)
	}
	p.windowParts = append(p.windowParts, body...)
	return nil
}

// whole returns a message with the PARTs before it. It is valid until the next message.
func (p *peer) whole(body []byte) []byte {
	if len(p.windowParts) == 0 {
		return body
	}
	all := append(p.windowParts, body...)
	p.windowParts = all[:0]
	return all
}

// onUpdate executes an UPDATE of a peer.
func (w *Windows) onUpdate(p *peer, body []byte) error {
	u, err := rma.ParseUpdate(p.whole(body))
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if p.outbox.results >= maxResults {
		return fmt.Errorf("%w: more than %d UPDATEs at once", transport.ErrProtocol, maxResults)
	}
	m := w.newMessage(channel.Updated)
	result := rma.Updated{Generation: u.Generation, Number: u.Number}
	old := m.body[rma.UpdatedHeader:][:0]
	result.Outcome, old = w.carryOut(p, &u, old)
	m.length = len(result.Append(m.body[:0])) + len(old)
	w.send(p, m)
	return nil
}

// carryOut changes elements of this rank's part of a window, and stores their old values in old if u wants
// them.
func (w *Windows) carryOut(p *peer, u *rma.Update, old []byte) (rma.Outcome, []byte) {
	win := w.find(u.Window)
	if win == nil || !win.has(p.rank) || !win.typ.Has(u.Op) {
		return rma.Refused, nil
	}
	data, size := u.Data, win.typ.Size
	var compare []byte
	if u.Op == rma.Swap {
		if len(data) != 2*size {
			return rma.Refused, nil
		}
		compare, data = data[:size], data[size:]
	}
	mem, offset := win.memoryAtLocked(u.Offset)
	if len(data) == 0 || len(data)%size != 0 || offset%uint64(size) != 0 ||
		offset > uint64(len(mem)) || uint64(len(data)) > uint64(len(mem))-offset {
		return rma.Refused, nil
	}
	src := w.aligned()[:copy(w.aligned(), data)]
	if u.Fetch {
		old = old[:len(data)]
	} else {
		old = nil
	}
	lock := (*rma.Lock)(unsafe.Pointer(&win.control[wordElements]))
	if !win.typ.IsWord() {
		win.changing.Lock()
		defer win.changing.Unlock()
	}
	// The wait for a lock that is never released happens only once: the engine's lock is held meanwhile, and
	// many UPDATEs could make all other peers take this rank for dead.
	if win.stuck && !lock.Free() {
		return rma.Stuck, nil
	}
	if win.stuck = !win.typ.Update(unsafe.Pointer(&mem[offset]), src, old, compare, u.Op, lock); win.stuck {
		return rma.Stuck, nil
	}
	return rma.Done, old
}

// aligned returns a buffer for operands.
func (w *Windows) aligned() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w.operands[0])), len(w.operands)*wordBytes)
}

// find returns the window with an id, or nil.
func (w *Windows) find(id uint32) *Window {
	for _, win := range w.list {
		if win.id == id {
			return win
		}
	}
	return nil
}

// has reports whether a world rank is in the window.
func (w *Window) has(rank int) bool {
	for i := range w.targets {
		if w.targets[i].rank == rank {
			return true
		}
	}
	return false
}

// onUpdated ends the operation of an UPDATE.
func (w *Windows) onUpdated(p *peer, body []byte) error {
	u, err := rma.ParseUpdated(p.whole(body))
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	o := p.fabric.oneSided.find(u.Number, u.Generation)
	if o == nil || !o.asked || o.peer != p {
		return fmt.Errorf("%w: UPDATED of an unknown operation", transport.ErrProtocol)
	}
	switch {
	case u.Outcome == rma.Refused:
		err = errRefused
	case u.Outcome == rma.Stuck:
		err = errStuck
	case len(u.Old) != len(o.into) && !o.givenUp:
		return fmt.Errorf("%w: UPDATED with %d bytes, not %d", transport.ErrProtocol, len(u.Old), len(o.into))
	}
	if err == nil {
		copy(o.into, u.Old)
	} else if !o.kept && !o.givenUp {
		o.target.broken = errors.Join(o.target.broken, err)
	}
	o.into = nil
	w.complete(o, err)
	return nil
}
