package engine

import (
	"cmp"
	"errors"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/layout"
	"github.com/weft-mpi/weft/transport"
)

// Target is this rank's access to one rank's part of a window.
type Target struct {
	w    *Window
	rank int // world rank
	card WindowCard

	// the address of the part in this process; nil if it is not mapped. It is set once, and valid until the
	// window is freed
	base atomic.Pointer[byte]

	Control ControlBlock
	shared  sharedMove

	failure atomic.Pointer[error] // of the peer

	// The engine's lock guards the following fields.
	keys      *windowKeys // in the peer's fabric; nil before the peer was reached
	unmaps    []func() error
	posted    posted
	broken    error // error of an accumulate that the target has refused; for the next Flush
	written   bool  // a Write was posted after the last confirming Read
	transfers transfers

	reached, hasRoom func() bool // conditions to wait for

	attachments *attachedParts // of a dynamic window; nil otherwise
	attachment  *attachedPart  // that this Target is; nil otherwise
}

// init sets what refers to the target itself, and the conditions for which calls wait.
func (t *Target) init() {
	t.Control.t, t.shared.t = t, t
	t.reached = func() bool { return t.unusableLocked() != nil || t.w.e.peerLocked(t.rank).state == peerOpen }
	t.hasRoom = func() bool {
		return t.unusableLocked() != nil || t.w.e.peerLocked(t.rank).oneSided < maxOneSided
	}
}

// maxOneSided bounds the operations that are posted at once for the windows of a peer: the other protocols
// have the rest of the send queue.
const maxOneSided = 128

// Bytes returns the size of the part.
func (t *Target) Bytes() int { return int(t.card.Bytes) }

// Base returns the address of the part in this process; nil if it is not mapped, or not yet.
func (t *Target) Base() unsafe.Pointer { return unsafe.Pointer(t.base.Load()) }

// Mapped reports whether the part is mapped in this process. It is valid once the target was reached.
func (t *Target) Mapped() bool { return t.Control.at.Load() != nil }

// Err returns the failure of the peer, or nil.
func (t *Target) Err() error {
	if err := t.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// unusableLocked returns why the target cannot be used, or nil.
func (t *Target) unusableLocked() error {
	t.w.e.mu.assertHeld()
	e := t.w.e
	if e.stopped != nil {
		return e.stopped
	}
	if p := e.peers[t.rank]; p != nil && p.state == peerFailed {
		return p.cause
	}
	return t.Err()
}

// Reach waits until the target's rank is connected, and its part mapped if possible, or until s ends.
func (t *Target) Reach(s *Canceller) error {
	if t.Control.at.Load() != nil {
		return nil
	}
	t.w.e.mu.Lock()
	defer t.w.e.mu.Unlock()
	_, err := t.reachLocked(s)
	return err
}

// reachLocked is Reach under the lock, which it releases while it waits. It returns the peer.
func (t *Target) reachLocked(s *Canceller) (*peer, error) {
	t.w.e.mu.assertHeld()
	e := t.w.e
	for {
		if err := t.unusableLocked(); err != nil {
			return nil, err
		}
		p := e.peerLocked(t.rank)
		switch {
		case p.state == peerOpen && t.keys != nil:
			return p, nil
		case p.state == peerOpen:
			keys, err := t.card.keysFor(p.fabric)
			if err != nil {
				return nil, err
			}
			t.keys = keys
			t.mapMemoryLocked(p)
			return p, nil
		case p.state == peerIdle:
			e.connections.connectLocked(p)
		}
		e.mu.Unlock()
		err := e.waiting.waitUnless(s, t.reached)
		e.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// mapMemoryLocked maps the memory and the control block, if both can be mapped.
func (t *Target) mapMemoryLocked(p *peer) {
	t.w.e.mu.assertHeld()
	m, ok := p.ch.QP().(transport.Mapper)
	if !ok {
		return
	}
	control := t.mapLocked(m, t.keys.Control, uint64(len(t.w.control)))
	if control == nil {
		return
	}
	if t.card.Bytes > 0 {
		mem := t.mapLocked(m, t.keys.Mem, t.card.Bytes)
		if mem == nil {
			_ = t.unmapLocked()
			return
		}
		t.base.Store(unsafe.SliceData(mem))
	}
	t.Control.at.Store(unsafe.SliceData(control))
}

// mapLocked maps a region of the peer until unmapLocked; nil if that is not possible, or if the region is
// shorter than the peer has said.
func (t *Target) mapLocked(m transport.Mapper, key transport.Key, size uint64) []byte {
	t.w.e.mu.assertHeld()
	mem, unmap, ok := m.MapRegion(key)
	if !ok {
		return nil
	}
	if uint64(len(mem)) < size {
		_ = unmap() // the peer's memory does not depend on it
		return nil
	}
	t.unmaps = append(t.unmaps, unmap)
	return mem
}

func (t *Target) unmapLocked() (err error) {
	t.w.e.mu.assertHeld()
	t.base.Store(nil)
	t.Control.at.Store(nil)
	for _, unmap := range t.unmaps {
		err = errors.Join(err, unmap())
	}
	t.unmaps = nil
	return err
}

// Put writes src at an offset, which is in bounds. The bytes are placed when a Flush has returned; src may be
// reused when a Flush or a FlushLocal has.
func (t *Target) Put(src []byte, at int, s *Canceller) error {
	return t.move(transport.OpWrite, src, at, nil, s)
}

// Get reads into dst from an offset, in bounds. dst has the bytes when a Flush or a FlushLocal has returned.
func (t *Target) Get(dst []byte, at int, s *Canceller) error {
	return t.move(transport.OpRead, dst, at, nil, s)
}

// PutView is Put of a view, which is not contiguous. It does nothing, and returns false, if the fabric to the
// target, which was reached before, does not support it.
func (t *Target) PutView(l *layout.Layout, mem unsafe.Pointer, at int, s *Canceller) (taken bool, err error) {
	return t.moveView(transport.OpWrite, l, mem, at, s)
}

// GetView is Get into a view, as PutView is Put.
func (t *Target) GetView(l *layout.Layout, mem unsafe.Pointer, at int, s *Canceller) (taken bool, err error) {
	return t.moveView(transport.OpRead, l, mem, at, s)
}

func (t *Target) moveView(op transport.Opcode, l *layout.Layout, mem unsafe.Pointer, at int, s *Canceller) (
	taken bool, err error) {
	if t.Control.at.Load() != nil {
		return false, nil
	}
	t.w.e.mu.Lock()
	defer t.w.e.mu.Unlock()
	p, err := t.reachLocked(s)
	if err != nil {
		return true, err
	}
	if p.fabric.views == nil {
		return false, nil
	}
	o, err := t.newOperationLocked(p, s)
	if err != nil {
		return true, err
	}
	n := l.Bytes()
	o.view = t.w.e.views.bufferLocked(l, mem)
	o.setTransfer(op, n, t.keys.Mem, at)
	switch {
	case n > slotBytes:
		if o.mr, err = p.fabric.views.RegisterView(o.view, n, accessOf(op)); err != nil {
			t.dropLocked(o)
			return true, err
		}
		o.local[0].MR, o.local[0].Offset = o.mr, 0
	case op == transport.OpWrite:
		o.view.Gather(0, o.bytes()[:n])
	}
	return true, t.postTransferLocked(p, o, s)
}

// move begins a Put or a Get of buf. A request, if not nil, counts its transfers.
func (t *Target) move(op transport.Opcode, buf []byte, at int, r *request, s *Canceller) error {
	if len(buf) == 0 {
		return nil
	}
	if t.Control.at.Load() == nil {
		t.w.e.mu.Lock()
		p, err := t.reachLocked(s)
		if err != nil || t.Control.at.Load() == nil {
			if err == nil {
				err = t.postLocked(p, op, buf, at, r, s)
			}
			t.w.e.mu.Unlock()
			return err
		}
		t.w.e.mu.Unlock()
	}
	if len(buf) < SharedMove || !t.shared.move(op, buf, at) {
		t.copyRange(op, buf, at)
	}
	return nil
}

// Flush waits until all operations on the target are complete at both ends. If s ends first they go on.
func (t *Target) Flush(s *Canceller) error {
	if t.attachments != nil {
		sys.FullBarrier()
		return t.flushAttachments(true, s)
	}
	if t.Control.at.Load() != nil {
		sys.FullBarrier()
		return t.Err()
	}
	return t.flush(true, s)
}

// FlushLocal waits until the buffers of all operations on the target may be reused.
func (t *Target) FlushLocal(s *Canceller) error {
	switch {
	case t.attachments != nil:
		return t.flushAttachments(false, s)
	case t.Control.at.Load() != nil:
		return t.Err()
	}
	return t.flush(false, s)
}

// FlushAll is Flush of all targets: it posts all confirming Reads first.
func (w *Window) FlushAll(s *Canceller) error {
	sys.FullBarrier()
	return w.flushAll(true, s)
}

// FlushLocalAll is FlushLocal of all targets.
func (w *Window) FlushLocalAll(s *Canceller) error { return w.flushAll(false, s) }

func (w *Window) flushAll(placed bool, s *Canceller) (err error) {
	if placed {
		for i := range w.targets {
			if t := &w.targets[i]; t.Control.at.Load() == nil {
				err = cmp.Or(err, t.beginFlush(s))
			}
		}
	}
	for i := range w.targets {
		switch t := &w.targets[i]; {
		case t.attachments != nil:
			err = cmp.Or(err, t.flushAttachments(placed, s))
		case t.Control.at.Load() == nil:
			err = cmp.Or(err, t.flush(placed, s))
		default:
			err = cmp.Or(err, t.Err())
		}
	}
	return err
}

// beginFlush posts the confirming Read of a flush, if one is needed.
func (t *Target) beginFlush(s *Canceller) error {
	t.w.e.mu.Lock()
	defer t.w.e.mu.Unlock()
	if !t.written {
		return nil
	}
	p, err := t.reachLocked(s)
	if err == nil {
		err = t.confirmLocked(p, s)
	}
	return err
}

// flush waits for the posted operations, and, with placed set, for a confirming Read: a Read that is posted
// after Writes completes after their bytes are placed.
func (t *Target) flush(placed bool, s *Canceller) error {
	e := t.w.e
	e.mu.Lock()
	if t.keys == nil { // nothing was ever posted
		err := t.Err()
		e.mu.Unlock()
		return err
	}
	var err error
	before := t.transfers
	if t.written && placed {
		var p *peer
		if p, err = t.reachLocked(s); err == nil {
			err = t.confirmLocked(p, s)
		}
	}
	if err == nil && !t.posted.empty() {
		// operations that other goroutines begin meanwhile do not count
		last := t.posted.newest.serial
		t.posted.newest.awaited = true
		e.mu.Unlock()
		err = e.waiting.waitUnless(s, func() bool {
			return t.posted.empty() || t.posted.oldest.serial > last || t.unusableLocked() != nil
		})
		e.mu.Lock()
	}
	if err == nil {
		t.transfers.end(before, placed)
		err = cmp.Or(t.unusableLocked(), t.broken)
		t.broken = nil
	}
	e.mu.Unlock()
	return err
}

// postLocked posts a transfer to the peer's queue pair. It releases the lock while there is no room.
func (t *Target) postLocked(p *peer, op transport.Opcode, buf []byte, at int, r *request,
	s *Canceller) error {
	t.w.e.mu.assertHeld()
	o, err := t.newOperationLocked(p, s)
	if err != nil {
		return err
	}
	if o.request = r; r != nil {
		r.openTransfers++
	}
	o.setTransfer(op, len(buf), t.keys.Mem, at)
	switch {
	case len(buf) > slotBytes:
		if o.mr, err = p.fabric.pd.Register(buf, accessOf(op)); err != nil {
			t.dropLocked(o)
			return err
		}
		o.local[0].MR, o.local[0].Offset = o.mr, 0
	case op == transport.OpWrite:
		copy(o.bytes(), buf)
	default:
		o.into = buf
	}
	return t.postTransferLocked(p, o, s)
}

// setTransfer makes an operation a transfer between its slot and n bytes at an offset of a region.
func (o *oneSided) setTransfer(op transport.Opcode, n int, key transport.Key, at int) {
	o.wr.Op = op
	o.local[0] = transport.SGE{MR: o.chunk.mr, Offset: o.slot(), Length: n}
	o.remote[0] = transport.Segment{Key: key, Offset: uint64(at), Length: uint64(n)}
}

// accessOf returns the right that an operation needs for its caller's buffer.
func accessOf(op transport.Opcode) transport.Access {
	if op == transport.OpRead {
		return transport.LocalWrite
	}
	return 0
}

// postTransferLocked posts a Write or a Read that setTransfer has described.
func (t *Target) postTransferLocked(p *peer, o *oneSided, s *Canceller) error {
	t.w.e.mu.assertHeld()
	if o.wr.Op == transport.OpWrite {
		t.written = true
		if o.mr == nil {
			o.wr.Flags |= transport.FlagMore // the Flush, or any pass, sends it
		}
	}
	put, counts := o.wr.Op == transport.OpWrite, o.request == nil || o.wr.Op == transport.OpWrite
	err := t.postOperationLocked(p, o, s)
	if err == nil && counts { // the request of a Get ends it
		t.transfers.count(put)
	}
	return err
}

// confirmLocked posts a confirming Read, if there are Writes to confirm: its completion says that all earlier
// Writes are placed.
func (t *Target) confirmLocked(p *peer, s *Canceller) error {
	t.w.e.mu.assertHeld()
	o, err := t.newOperationLocked(p, s)
	if err != nil {
		return err
	}
	if !t.written { // another goroutine's Read comes after the Writes
		t.dropLocked(o)
		return nil
	}
	o.setTransfer(transport.OpRead, wordBytes, t.keys.Control, 0)
	if err = t.postOperationLocked(p, o, s); err == nil {
		t.written = false // not before: the Read may not be posted, and others rely on it
	}
	return err
}

// postOperationLocked posts an operation, or frees it on failure. It releases the lock while there is no
// room.
func (t *Target) postOperationLocked(p *peer, o *oneSided, s *Canceller) error {
	t.w.e.mu.assertHeld()
	e, generation := t.w.e, o.generation
	for {
		err := p.ch.QP().PostSend(&o.wr)
		if err == nil {
			return nil
		}
		if !isQueueFull(err) {
			t.dropLocked(o)
			return t.w.e.failures.because(p, err)
		}
		e.progress.poll()
		e.mu.Unlock()
		runtime.Gosched()
		e.mu.Lock()
		if err := t.unusableLocked(); err != nil {
			if o.generation == generation { // else the failure has ended it, and it may serve another
				t.dropLocked(o)
			}
			return err
		}
		if err := s.Err(); err != nil {
			t.dropLocked(o)
			return err
		}
	}
}
