package engine

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// A long Put or Get of a part that is mapped here is a copy, and the rank whose part it is may have nothing
// to do meanwhile. Then it copies a share of the bytes (docs/internals/adr/0070). Claims in the control block
// of the part say who copies what. They serve one operation at a time; the others are copied by their callers
// alone.

// SharedMove is how long a Put or a Get is that both ends may copy.
const SharedMove = 128 << 10

// movesIn marks the id of a Put among the transfers of a part; the rest is the world rank of its caller.
const movesIn = 1 << 32

// sharedMoves is what this rank copies for others, of its part of a window.
type sharedMoves struct {
	sharedcopy.Helper // has no claims where it does not
	peer              transport.Segment
}

// enableSharedMovesLocked has this rank copy for others while it waits, if it has a core of its own for that
// and they have its part mapped.
func (w *Window) enableSharedMovesLocked() {
	w.e.mu.assertHeld()
	if w.dynamic == nil && w.e.waiting.spinTime > 0 && len(w.mem) >= SharedMove && w.shares(w.mem) {
		w.shared.Claims = sharedcopy.In(w.control[wordClaims:])
	}
}

// endUseLocked has others use the claims of this rank's part if a peer that has failed used them.
func (w *Window) endUseLocked(p *peer) {
	w.e.mu.assertHeld()
	user := (*uint64)(unsafe.Pointer(&w.control[wordUser]))
	atomic.CompareAndSwapUint64(user, uint64(p.rank)+1, 0)
}

// moveShared is move of memory of Alloc to or from a mapped part, together with the part's owner; false if it
// has done nothing that counts.
func (t *Target) moveShared(op transport.Opcode, buf []byte, at int) bool {
	e := t.w.e
	if t.part != nil || t.rank == e.rank || e.waiting.spinTime == 0 || !e.hub.memory.mayHave(buf) ||
		!t.leading.TryLock() {
		return false
	}
	defer t.leading.Unlock()
	user := t.controlWord(wordUser)
	if !atomic.CompareAndSwapUint64(user, 0, uint64(e.rank)+1) {
		return false
	}
	defer atomic.StoreUint64(user, 0)
	if t.leader.Claims == nil {
		t.leader.Claims = (*sharedcopy.Claims)(unsafe.Pointer(t.controlWord(wordClaims)))
	}
	if t.leader.Broken || !t.leader.Worthwhile(uint64(len(buf))) {
		return false
	}
	for len(buf) >= sharedcopy.Min {
		n := min(len(buf), sharedcopy.MaxPart)
		if !t.movePart(op, buf[:n], at) {
			return false
		}
		buf, at = buf[n:], at+n
	}
	t.copyRange(op, buf, at)
	return true
}

// copyRange moves bytes from or to a mapped part.
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

// movePart is moveShared of a part of the bytes, by whoever uses the claims.
func (t *Target) movePart(op transport.Opcode, buf []byte, at int) bool {
	mr, memory := t.registerShared(op, buf)
	if mr == nil {
		return false
	}
	p := sharedcopy.Part{ID: uint64(t.w.e.rank), Key: uint64(mr.Key()), At: uint64(at),
		Length: uint64(len(buf))}
	if op == transport.OpWrite {
		p.ID |= movesIn
	}
	var wait ownerWait
	t.leader.AfterOthers()
	ok := t.leader.Copy(&p, func(from, to uint64) bool {
		t.copyRange(op, buf[from:to], at+int(from))
		return true
	}, func() bool { return t.waitOn(&wait) })
	t.w.e.mu.Lock()
	defer t.w.e.mu.Unlock()
	t.w.e.hub.UnpinMemory(memory)
	return mr.Deregister() == nil && ok // after that the owner writes nothing here
}

// ownerWait is a wait for an owner that is late.
type ownerWait struct {
	last   time.Time
	lasted time.Duration // but for what this process itself may have stood still
}

// step notes that time has passed.
func (o *ownerWait) step() {
	now := time.Now()
	if !o.last.IsZero() {
		o.lasted += min(now.Sub(o.last), 100*time.Millisecond)
	}
	o.last = now
}

// waitOn tells whether to wait on for an owner that has not copied what it has claimed. It has to be waited
// for as long as it may go on: what it stores in its part then would be old. One that has stopped is found to
// have failed; one that does everything else is given up here.
func (t *Target) waitOn(o *ownerWait) bool {
	runtime.Gosched()
	o.step()
	e := t.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped == nil && !e.completionHandler.active() {
		e.progress.poll()
	}
	if p := e.peers[t.rank]; o.lasted > e.Windows.peerTimeout && t.unusableLocked() == nil {
		e.failures.failPeer(p, errShareStands)
	}
	return t.unusableLocked() == nil
}

var errShareStands = fmt.Errorf("%w: its share of a Put to its part of a window, or of a Get, stands",
	transport.ErrPeerLost)

// registerShared gives the target the right that a copy needs, and pins the memory; nil if that cannot be
// done, or not cheaply.
func (t *Target) registerShared(op transport.Opcode, buf []byte) (transport.MR, *Memory) {
	e := t.w.e
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[t.rank]
	if p == nil || p.state != peerOpen {
		return nil, nil
	}
	m := e.hub.PinMemory(buf)
	if m == nil {
		return nil, nil
	}
	rights := transport.LocalWrite | transport.RemoteWrite
	if op == transport.OpWrite {
		rights = transport.RemoteRead
	}
	mr, err := p.fabric.pd.Register(buf, rights)
	if err != nil {
		e.hub.UnpinMemory(m)
		return nil, nil
	}
	return mr, m
}

// claimsPerPass bounds what one pass copies of a window, 256 KiB each.
const claimsPerPass = 4

// copyShared copies shares of what others move to or from parts of this rank at this moment. It tells whether
// there was anything. Call it in every pass.
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

// openPeerLocked is the peer of a world rank that one has named; nil if it is not open.
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
