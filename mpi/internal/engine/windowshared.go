package engine

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// A long Put or Get of a part that is mapped here is a copy, and the owner of the part may be waiting
// meanwhile. Then it copies a portion of the bytes (docs/internals/adr/0070). A claim is a range of pages
// that one end has taken to copy; the claims are in the control block of the part. They serve one operation
// at a time; other operations are copied by their callers alone.

// SharedMove is the length from which both ends may copy a Put or a Get.
const SharedMove = 128 << 10

// movesIn is set in the id of a Put; the rest of an id is the world rank of the caller.
const movesIn = 1 << 32

// sharedMoves is this rank's help with Puts and Gets of others in its part.
type sharedMoves struct {
	sharedcopy.Helper // without claims if this rank does not help
	peer              transport.Segment
}

// enableSharedMovesLocked lets this rank copy for others while it waits, if it does not share its core and
// they can map its part.
func (w *Window) enableSharedMovesLocked() {
	w.e.mu.assertHeld()
	if w.dynamic == nil && w.e.waiting.spinTime > 0 && len(w.mem) >= SharedMove && w.shares(w.mem) {
		w.shared.Claims = sharedcopy.In(w.control[wordClaims:])
	}
}

// endUseLocked frees the claims of this rank's part if a failed peer used them.
func (w *Window) endUseLocked(p *peer) {
	w.e.mu.assertHeld()
	user := (*uint64)(unsafe.Pointer(&w.control[wordUser]))
	atomic.CompareAndSwapUint64(user, uint64(p.rank)+1, 0)
}

// sharedMove is a long Put or Get of a target that its owner helps to copy, one at a time.
type sharedMove struct {
	t *Target
	// held by the goroutine whose Put or Get uses the claims of the part; before the engine's lock
	leading sync.Mutex
	leader  sharedcopy.Leader
}

// move is Target.move for memory of Alloc and a mapped part, together with the part's owner. If it returns
// false the caller must copy everything.
func (m *sharedMove) move(op transport.Opcode, buf []byte, at int) bool {
	e := m.t.w.e
	if m.t.attachment != nil || m.t.rank == e.rank || e.waiting.spinTime == 0 || !e.hub.Memory.mayHave(buf) ||
		!m.leading.TryLock() {
		return false
	}
	defer m.leading.Unlock()
	user := m.t.Control.word(wordUser)
	if !atomic.CompareAndSwapUint64(user, 0, uint64(e.rank)+1) {
		return false
	}
	defer atomic.StoreUint64(user, 0)
	if m.leader.Claims == nil {
		m.leader.Claims = (*sharedcopy.Claims)(unsafe.Pointer(m.t.Control.word(wordClaims)))
	}
	if m.leader.Broken || !m.leader.Worthwhile(uint64(len(buf))) {
		return false
	}
	for len(buf) >= sharedcopy.Min {
		n := min(len(buf), sharedcopy.MaxPart)
		if !m.movePart(op, buf[:n], at) {
			return false
		}
		buf, at = buf[n:], at+n
	}
	m.t.copyRange(op, buf, at)
	return true
}

// copyRange copies bytes from or to a mapped part.
func (t *Target) copyRange(op transport.Opcode, buf []byte, at int) {
	if len(buf) == 0 {
		return
	}
	there := unsafe.Slice((*byte)(unsafe.Add(t.Base(), at)), len(buf))
	if op == transport.OpWrite {
		copy(there, buf)
	} else {
		copy(buf, there)
	}
}

// movePart is move for one piece of the bytes. The caller has the claims.
func (m *sharedMove) movePart(op transport.Opcode, buf []byte, at int) bool {
	mr, memory := m.register(op, buf)
	if mr == nil {
		return false
	}
	p := sharedcopy.Part{ID: uint64(m.t.w.e.rank), Key: uint64(mr.Key()), At: uint64(at),
		Length: uint64(len(buf))}
	if op == transport.OpWrite {
		p.ID |= movesIn
	}
	var wait ownerWait
	m.leader.AfterOthers()
	ok := m.leader.Copy(&p, func(from, to uint64) bool {
		m.t.copyRange(op, buf[from:to], at+int(from))
		return true
	}, func() bool { return m.waitOn(&wait) })
	m.t.w.e.mu.Lock()
	defer m.t.w.e.mu.Unlock()
	m.t.w.e.hub.Memory.Unpin(memory)
	return mr.Deregister() == nil && ok // after this the owner writes nothing here
}

// ownerWait measures a wait for the owner of a part.
type ownerWait struct {
	last   time.Time
	lasted time.Duration // without the time in which this process itself may have been stopped
}

// step adds the time since the last step.
func (o *ownerWait) step() {
	now := time.Now()
	if !o.last.IsZero() {
		o.lasted += min(now.Sub(o.last), 100*time.Millisecond)
	}
	o.last = now
}

// waitOn reports whether to go on waiting for an owner that has not copied the pages that it has claimed. The
// caller must wait while the owner may still copy, because a late copy would overwrite newer data. The
// failure of an owner that has died is detected elsewhere; one that is alive but does not copy fails here
// after peerTimeout.
func (m *sharedMove) waitOn(o *ownerWait) bool {
	runtime.Gosched()
	o.step()
	e := m.t.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil && !e.completionHandler.active() {
		e.progress.poll()
	}
	if p := e.peers[m.t.rank]; o.lasted > e.Windows.peerTimeout && m.t.unusableLocked() == nil {
		e.failures.failPeer(p, errShareStands)
	}
	return m.t.unusableLocked() == nil
}

var errShareStands = fmt.Errorf("%w: it does not copy its portion of a Put to its part of a window, "+
	"or of a Get", transport.ErrPeerLost)

// register registers buf with the right that the owner's copy needs, and pins it; nil if buf is not
// memory of Alloc, or the peer is not connected.
func (m *sharedMove) register(op transport.Opcode, buf []byte) (transport.MR, *Memory) {
	e := m.t.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[m.t.rank]
	if p == nil || p.state != peerOpen {
		return nil, nil
	}
	pinned := e.hub.Memory.Pin(buf)
	if pinned == nil {
		return nil, nil
	}
	rights := transport.LocalWrite | transport.RemoteWrite
	if op == transport.OpWrite {
		rights = transport.RemoteRead
	}
	mr, err := p.fabric.pd.Register(buf, rights)
	if err != nil {
		e.hub.Memory.Unpin(pinned)
		return nil, nil
	}
	return mr, pinned
}

// claimsPerPass bounds the claims of a window that one pass copies, 256 KiB each.
const claimsPerPass = 4

// copyShared helps with the current Puts and Gets of others in this rank's parts. It reports whether there
// were any. Every pass calls it.
func (w *Windows) copyShared() (did bool) {
	for _, win := range w.list {
		for k := 0; k < claimsPerPass && win.shared.Due() && win.copyPagesLocked(); k++ {
			did = true
		}
	}
	return did
}

// copyPagesLocked copies the pages of one claim; false if all are claimed.
func (w *Window) copyPagesLocked() bool {
	w.e.mu.assertHeld()
	s := &w.shared
	o, ok := s.Next()
	if !ok {
		return false
	}
	p := w.e.Windows.openPeerLocked(o.ID &^ movesIn)
	if p == nil || !o.Within(uint64(len(w.mem))) {
		s.Ignore(&o)
		return false
	}
	from, n := s.Claim(&o)
	if n == 0 {
		return true
	}
	var err error
	s.peer = transport.Segment{Key: transport.Key(o.Key), Offset: from, Length: n}
	if here := w.mem[o.At+from:][:n]; o.ID&movesIn != 0 {
		err = p.ch.QP().Get(here, &s.peer)
	} else {
		err = p.ch.QP().Put(here, &s.peer)
	}
	if err != nil {
		s.Failed(&o, err != transport.ErrNotNow)
		return false
	}
	s.Copied(&o)
	w.e.Windows.copied += n
	return true
}

// openPeerLocked returns the peer of a world rank, which may be invalid; nil if the peer is not open.
func (w *Windows) openPeerLocked(rank uint64) *peer {
	e := w.e
	e.mu.assertHeld()
	if rank >= uint64(len(e.peers)) {
		return nil
	}
	if p := e.peers[rank]; p != nil && p.state == peerOpen && p.rank != e.rank {
		return p
	}
	return nil
}
