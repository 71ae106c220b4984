package engine

import (
	"iter"
	"unsafe"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/layout"
	"github.com/weft-mpi/weft/rendezvous"
)

// A view is a buffer that is not contiguous, as a derived datatype of MPI describes: the bytes that a layout
// (package layout) selects from memory. Messages of up to stageBytes are packed into the engine's own memory
// and sent as all others. Longer ones are announced, and go through the bounce buffers of package rendezvous.
// So no message of a view needs more than stageBytes of memory at either end.
const stageBytes = 2 * rendezvous.StagePiece

// viewMessages sends and receives views. The lock guards it.
type viewMessages struct {
	e        *Engine
	free     *viewBuffer
	outgoing packedBuffer // a message to send, until it is in its slot
	incoming packedBuffer // a message taken directly from a ring
	copied   packedBuffer // a message of this rank to itself
}

// packedBuffer is memory for bytes that must be contiguous. The large buffer is page-aligned, as rings are.
// Loads from a ring could then wait for stores to it at the same page offset (4K aliasing), so few bytes have
// a separate buffer.
type packedBuffer struct {
	few  [512]byte
	many []byte
}

// room returns memory for n bytes, at most stageBytes.
func (b *packedBuffer) room(n int) []byte {
	if n <= len(b.few) {
		return b.few[:n]
	}
	if b.many == nil {
		b.many = make([]byte, stageBytes)
	}
	return b.many[:n]
}

// viewBuffer is the user's buffer of a request that is not contiguous.
type viewBuffer struct {
	layout.Cursor
	layout layout.Layout
	next   *viewBuffer
}

// bytes returns the length of the buffer.
func (b *viewBuffer) bytes() int { return b.layout.Bytes() }

// memory returns the first contiguous bytes of the buffer, which identify its memory.
func (b *viewBuffer) memory() []byte {
	from, n := b.layout.Span(0)
	return unsafe.Slice((*byte)(unsafe.Add(b.Memory, from)), n)
}

// setViewLocked makes a view the request's buffer.
func (v *viewMessages) setViewLocked(r *request, l *layout.Layout, mem unsafe.Pointer) {
	v.e.mu.assertHeld()
	r.view = v.bufferLocked(l, mem)
}

// bufferLocked returns a buffer for a view, until releaseLocked.
func (v *viewMessages) bufferLocked(l *layout.Layout, mem unsafe.Pointer) *viewBuffer {
	v.e.mu.assertHeld()
	b := v.free
	if b == nil {
		b = &viewBuffer{}
	} else {
		v.free = b.next
	}
	b.layout, b.next = *l, nil
	b.Cursor = layout.Cursor{Layout: &b.layout, Memory: mem}
	return b
}

// setBufferLocked makes a block the request's buffer. The block may be contiguous, or empty.
func (v *viewMessages) setBufferLocked(r *request, b Block) {
	v.e.mu.assertHeld()
	from, ok := b.Layout.Contiguous()
	switch {
	case b.Layout.Bytes() == 0:
		r.contiguous(nil)
	case ok:
		r.contiguous(unsafe.Slice((*byte)(unsafe.Add(b.Memory, from)), b.Layout.Bytes()))
	default:
		v.setViewLocked(r, b.Layout, b.Memory)
	}
}

// releaseLocked frees the buffer of a request.
func (v *viewMessages) releaseLocked(b *viewBuffer) {
	v.e.mu.assertHeld()
	*b = viewBuffer{next: v.free}
	v.free = b
}

// SendView is Send of a view of at least one byte.
func (s *Sends) SendView(context uint32, l *layout.Layout, mem unsafe.Pointer, dst, tag int) error {
	e := s.e
	if e.hook != nil {
		start := e.hook.begin(CallSend, l.Bytes())
		e.mu.Lock()
		err := e.views.sendAndUnlock(context, l, mem, dst, tag)
		e.hook.end(CallSend, start, dst, tag, l.Bytes())
		return err
	}
	e.mu.Lock()
	p, n := e.peers[dst], l.Bytes()
	if p == nil || n > stageBytes || !p.canSendEager(n) {
		return e.views.sendAndUnlock(context, l, mem, dst, tag)
	}
	// the common case, as in Send
	buf := e.views.outgoing.room(n)
	l.Gather(mem, buf)
	if s.sendEagerLocked(p, envelope{Context: context, Tag: int32(tag)}, buf, 0) {
		e.mu.Unlock()
		return nil
	}
	return e.views.waitAndUnlock(context, l, mem, dst, tag)
}

// sendAndUnlock sends a view and waits for the send.
func (v *viewMessages) sendAndUnlock(context uint32, l *layout.Layout, mem unsafe.Pointer,
	dst, tag int) error {
	v.e.mu.assertHeld()
	if v.sendNowLocked(context, l, mem, dst, tag, false) {
		v.e.mu.Unlock()
		return nil
	}
	return v.waitAndUnlock(context, l, mem, dst, tag)
}

// waitAndUnlock begins a send with a request and waits for it.
func (v *viewMessages) waitAndUnlock(context uint32, l *layout.Layout, mem unsafe.Pointer,
	dst, tag int) error {
	v.e.mu.assertHeld()
	r, err := v.sendLocked(context, l, mem, dst, tag)
	v.e.mu.Unlock()
	if err == nil {
		_, err = v.e.waiting.wait(r)
	}
	return err
}

// IsendView is Isend of a view of at least one byte. The layout itself, but not what it refers to, may be
// reused at once.
func (s *Sends) IsendView(context uint32, l *layout.Layout, mem unsafe.Pointer, dst, tag int) (Request,
	error) {
	e := s.e
	if e.hook == nil {
		return e.views.beginSend(context, l, mem, dst, tag)
	}
	start := e.hook.begin(CallIsend, l.Bytes())
	h, err := e.views.beginSend(context, l, mem, dst, tag)
	e.hook.end(CallIsend, start, dst, tag, l.Bytes())
	return h, err
}

// beginSend begins a nonblocking send, and returns its handle.
func (v *viewMessages) beginSend(context uint32, l *layout.Layout, mem unsafe.Pointer, dst, tag int) (
	h Request, err error) {
	v.e.mu.Lock()
	more := v.e.stopped == nil && v.e.coalescer.shouldCoalesceTo(dst, l.Bytes())
	if v.sendNowLocked(context, l, mem, dst, tag, more) {
		h = v.e.Requests.newCompleted()
		v.e.mu.Unlock()
		return h, nil
	}
	r, err := v.sendLocked(context, l, mem, dst, tag)
	if err == nil {
		h = r.handle()
	}
	v.e.mu.Unlock()
	return h, err
}

// sendNowLocked sends a message that fits a slot and need not wait for others, or, with more set, adds it to
// a batch; false if it needs a request.
func (v *viewMessages) sendNowLocked(context uint32, l *layout.Layout, mem unsafe.Pointer, dst, tag int,
	more bool) bool {
	v.e.mu.assertHeld()
	p, n := v.e.peers[dst], l.Bytes()
	if p == nil || n > min(p.eagerLimit, stageBytes) || v.e.stopped != nil {
		return false
	}
	buf := v.outgoing.room(n)
	env := envelope{Context: context, Tag: int32(tag)}
	if more && n <= p.maxBatched() {
		l.Gather(mem, buf)
		if v.e.coalescer.add(p, env, buf) {
			return true
		}
	}
	if !p.canSendEager(n) && !v.e.Sends.canSendAfterBatchLocked(p, n) {
		return false
	}
	l.Gather(mem, buf)
	return v.e.Sends.sendEagerLocked(p, env, buf, sendFlags(more && p.burst.coalesced))
}

// sendLocked begins a send with a request.
func (v *viewMessages) sendLocked(context uint32, l *layout.Layout, mem unsafe.Pointer,
	dst, tag int) (*request, error) {
	v.e.mu.assertHeld()
	if v.e.stopped != nil {
		return nil, v.e.stopped
	}
	r := v.e.Requests.get()
	v.setViewLocked(r, l, mem)
	v.e.Sends.startLocked(r, envelope{Context: context, Tag: int32(tag)}, dst, false)
	return r, nil
}

// trySendLocked is Sends.trySendLocked for a view: a message that may fit a slot is packed, a longer one
// announced.
func (v *viewMessages) trySendLocked(p *peer, r *request) (through bool, err error) {
	v.e.mu.assertHeld()
	m, n := &r.msg, r.view.bytes()
	if !r.sync && n <= min(p.eagerLimit, stageBytes) && !p.refusesPayload(n) {
		buf := v.outgoing.room(n)
		r.view.Gather(0, buf)
		r.one[0] = buf
		m.Elems = r.one[:]
		_, o, err := m.TrySend(p.ch, 0)
		m.Elems, r.one[0] = nil, nil
		switch {
		case err != nil || o == channel.Waiting:
			return false, err
		case o == channel.Done:
			m.MarkStarted()
			m.Finish()
			p.stats.eager(n)
			v.e.recorder.Note(recorder.Sent, m.Context, p.rank, int(m.Tag), n)
			v.e.hook.sent(m.Envelope, p.rank, n)
			v.e.Requests.complete(r, nil)
			return true, nil
		}
	}
	id, ok, err := p.fabric.sender.TrySendGathered(p.ch, m.Envelope, r.view, n, r.token(), false)
	if !ok {
		return false, err
	}
	m.MarkStarted()
	r.openTransfers++
	r.announcement = id + 1
	p.stats.Rendezvous++
	p.stats.RendezvousBytes += uint64(n)
	v.e.recorder.Note(recorder.Announced, m.Context, p.rank, int(m.Tag), n)
	v.e.hook.sent(m.Envelope, p.rank, n)
	return true, nil
}

// RecvView is Recv into a view of at least one byte. The layout contains no byte twice.
func (v *Recvs) RecvView(context uint32, l *layout.Layout, mem unsafe.Pointer, src, tag, elem int,
	st *Status) (err error) {
	e := v.e
	room := l.Bytes()
	start := e.hook.begin(CallRecv, room)
	e.mu.Lock()
	if room <= stageBytes && src != AnySource && tag != AnyTag && v.canRecvDirectLocked(src) {
		buf := e.views.incoming.room(room)
		n, ok := v.recvDirectLocked(e.peers[src], envelope{Context: context, Tag: int32(tag)}, buf)
		if ok {
			l.Scatter(mem, buf[:n])
			addr := eager.PrefetchAddr(e.peers[src].ch, n)
			e.mu.Unlock()
			prefetch(addr)
			st.Source, st.Tag, st.Bytes, st.Elem, st.Cancelled = src, tag, n, elem, false
			e.hook.end(CallRecv, start, src, tag, room)
			if v.partial(n, elem) {
				return v.partialError(st)
			}
			return nil
		}
	}
	r, err := e.views.receiveLocked(context, l, mem, src, tag, elem)
	e.mu.Unlock()
	if err == nil {
		*st, err = e.waiting.wait(r)
	}
	e.hook.end(CallRecv, start, src, tag, room)
	return err
}

// IrecvView is Irecv into a view of at least one byte. The layout contains no byte twice.
func (v *Recvs) IrecvView(context uint32, l *layout.Layout, mem unsafe.Pointer, src, tag, elem int) (Request,
	error) {
	e := v.e
	if e.hook == nil {
		return e.views.beginReceive(context, l, mem, src, tag, elem)
	}
	start := e.hook.begin(CallIrecv, l.Bytes())
	h, err := e.views.beginReceive(context, l, mem, src, tag, elem)
	e.hook.end(CallIrecv, start, src, tag, l.Bytes())
	return h, err
}

// beginReceive posts a receive and returns its handle.
func (v *viewMessages) beginReceive(context uint32, l *layout.Layout, mem unsafe.Pointer, src, tag,
	elem int) (h Request, err error) {
	v.e.mu.Lock()
	r, err := v.receiveLocked(context, l, mem, src, tag, elem)
	if err == nil {
		h = r.handle()
	}
	v.e.mu.Unlock()
	return h, err
}

func (v *viewMessages) receiveLocked(context uint32, l *layout.Layout, mem unsafe.Pointer,
	src, tag, elem int) (*request, error) {
	v.e.mu.assertHeld()
	if v.e.stopped != nil {
		return nil, v.e.stopped
	}
	r := v.e.Requests.get()
	v.setViewLocked(r, l, mem)
	v.e.Recvs.startLocked(r, context, src, tag, elem)
	return r, nil
}

// place copies bytes that have come through the bounce buffers of package rendezvous into the receive with
// the token.
func (v *viewMessages) place(token uint64, at int, b []byte) {
	if r := v.e.Requests.byToken(token); r != nil && !r.completed() {
		r.copyIn(at, b)
	}
}

// pieces yields the bytes of a send of this rank to itself, in order. Each piece is valid until the next one.
func (v *viewMessages) pieces(r *request) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if r.view == nil {
			for _, b := range r.vec {
				if !yield(b) {
					return
				}
			}
			return
		}
		buf := v.copied.room(stageBytes)
		for at, n := 0, r.view.bytes(); at < n; at += len(buf) {
			buf = buf[:min(len(buf), n-at)]
			if r.view.Gather(at, buf); !yield(buf) {
				return
			}
		}
	}
}
