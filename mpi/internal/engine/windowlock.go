package engine

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// The lock of a part of a window is a queue of tickets in its control block: who wants the lock takes the
// next ticket and waits until it is served. Who shares the lock counts himself among the sharers, and has
// the next ticket served at once; who wants it alone waits until there are no sharers, and has the next
// ticket served when he leaves. So the lock goes to its seekers in the order in which they came, whoever they
// are, and needs nobody's help: each step is an atomic on a word.
const (
	wordNext    = 0   // the next ticket
	wordServing = 64  // the ticket that is served
	wordSharers = 128 // how many share the lock

	wordElements = 192 // rma.Lock of elements that are no words

	controlBytes = 4096
)

// WindowLock takes the target's lock.
func (t *Target) Lock(exclusive bool) error {
	ticket, err := t.add(wordNext, 1)
	if err == nil {
		err = t.await(wordServing, ticket)
	}
	switch {
	case err != nil:
		return err
	case exclusive:
		return t.await(wordSharers, 0)
	}
	if _, err = t.add(wordSharers, 1); err == nil {
		_, err = t.add(wordServing, 1)
	}
	return err
}

// Unlock leaves the lock that Lock took. What was done under it is to be flushed before.
func (t *Target) Unlock(exclusive bool) error {
	word, by := wordServing, uint64(1)
	if !exclusive {
		word, by = wordSharers, ^uint64(0)
	}
	_, err := t.add(word, by)
	return err
}

// suspectAfter is how long a wait for a lock may last before this rank looks whether all others live.
const suspectAfter = time.Second

// await returns when a control word has a value. It fails if a rank of the window has failed: whoever had the
// lock, or a ticket before ours, may have been that one.
func (t *Target) await(word int, value uint64) error {
	var began time.Time
	suspected := false
	for try := 0; ; try++ {
		v, err := t.load(word)
		if err != nil || v == value {
			return err
		}
		if err := t.w.anyFailed(); err != nil {
			return err
		}
		if began.IsZero() {
			began = time.Now()
		}
		t.w.pause(try)
		if !suspected && try&63 == 63 && time.Since(began) > suspectAfter {
			suspected = true
			t.w.connectAll()
		}
	}
}

// lockSpins is how often a rank looks at a lock before it sleeps between two looks.
const lockSpins = 200

// pause lets some time pass between two looks, while this rank's communication goes on.
func (w *Window) pause(try int) {
	if w.e.mu.TryLock() {
		if w.e.stopped == nil && !w.e.completionHandler.active() {
			w.e.progress.poll()
		}
		w.e.mu.Unlock()
	}
	switch {
	case try > lockSpins:
		time.Sleep(min(time.Duration(try-lockSpins)*time.Microsecond, 200*time.Microsecond))
	case w.e.waiters.spinTime == 0:
		sys.Yield()
	case try%passesPerYield == 0:
		runtime.Gosched()
	}
}

// Pause lets some time pass.
func (w *Window) Pause() { w.pause(lockSpins + 1) }

// anyFailed is the failure of a rank of the window, or of this rank, or that the window was revoked.
func (w *Window) anyFailed() error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.e.stopped != nil {
		return w.e.stopped
	}
	if err := w.e.recovery.revokedErr(w.id); err != nil || len(w.e.failures.peers) == 0 {
		return err
	}
	for i := range w.targets {
		if err := w.targets[i].unusable(); err != nil {
			return err
		}
	}
	return nil
}

// connectAll begins a connection to every rank of the window that has none: one that has failed is found so.
func (w *Window) connectAll() {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	for i := range w.targets {
		t := &w.targets[i]
		if p := w.e.peer(t.rank); p.state == peerIdle && t.rank != w.e.rank && w.e.stopped == nil {
			w.e.connections.connect(p)
		}
	}
}

// add adds to a control word, and gives it as it was.
func (t *Target) add(word int, by uint64) (uint64, error) {
	if at := t.controlWord(word); at != nil {
		return atomic.AddUint64(at, by) - by, nil
	}
	return t.wordOperation(transport.OpFetchAdd, word, by)
}

// load reads a control word.
func (t *Target) load(word int) (uint64, error) {
	if at := t.controlWord(word); at != nil {
		return atomic.LoadUint64(at), nil
	}
	return t.wordOperation(transport.OpRead, word, 0)
}

func (t *Target) controlWord(word int) *uint64 {
	base := t.control.Load()
	if base == nil {
		return nil
	}
	return (*uint64)(unsafe.Add(unsafe.Pointer(base), word))
}

// wordOperation carries out an operation on a control word by the queue pair, if it is not mapped, and waits
// for the word as it was.
func (t *Target) wordOperation(op transport.Opcode, word int, operand uint64) (uint64, error) {
	e := t.w.e
	e.mu.Lock()
	p, err := t.reach()
	if err != nil {
		e.mu.Unlock()
		return 0, err
	}
	if t.control.Load() != nil { // it is mapped now
		e.mu.Unlock()
		if op == transport.OpRead {
			return t.load(word)
		}
		return t.add(word, operand)
	}
	v, err := t.fetch(p, op, t.keys.Control, word, operand, 0)
	e.mu.Unlock()
	return v, err
}

// fetch carries out a Read or an Atomic of a word and waits for what it brings. The lock is held, and left
// meanwhile.
func (t *Target) fetch(p *peer, op transport.Opcode, key transport.Key, at int, operand, compare uint64) (
	uint64, error) {
	e := t.w.e
	o, err := t.newOperation(p)
	if err != nil {
		return 0, err
	}
	o.kept = true
	o.local[0] = transport.SGE{MR: o.chunk.mr, Offset: o.slot(), Length: wordBytes}
	o.remote[0] = transport.Segment{Key: key, Offset: uint64(at), Length: wordBytes}
	o.wr.Op, o.wr.Operand, o.wr.Compare = op, operand, compare
	if err := t.postOperation(p, o); err != nil {
		return 0, err
	}
	if !o.done {
		e.mu.Unlock()
		e.waiters.waitUntil(0, nil, o.ended)
		e.mu.Lock()
	}
	v, err := o.word(), o.err
	t.drop(o)
	return v, err
}
