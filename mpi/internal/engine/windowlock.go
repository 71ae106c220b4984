package engine

import (
	"cmp"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/program"
	"github.com/weft-mpi/weft/transport"
)

// The lock of a part of a window is a ticket lock in its control block: a rank that wants the lock takes the
// next ticket and waits until it is served. A rank that shares the lock counts itself among the sharers, and
// serves the next ticket at once; a rank that locks exclusively waits until there are no sharers, and serves
// the next ticket when it unlocks. So the lock is fair, and needs no help of the target: each step is an
// atomic on a word.
const (
	wordNext    = 0   // the next ticket
	wordServing = 64  // the ticket that is served
	wordSharers = 128 // the number of sharers

	wordElements = 192 // rma.Lock of elements that are not words

	wordUser = 256 // the world rank, plus one, whose Put or Get uses the claims; 0 for none
	// sharedcopy.Claims: the page ranges of a Put or Get that either end has taken to copy (windowshared.go)
	wordClaims = 384

	controlBytes = 4096
)

// ControlBlock is this rank's access to the control block of a rank's part of a window, where the lock of the
// part is.
type ControlBlock struct {
	t  *Target
	at atomic.Pointer[byte] // in this process, as Target.base
}

// Lock takes the target's lock. If s ends first it does not get the lock, and a goroutine releases it when
// this rank's ticket is served.
func (c *ControlBlock) Lock(exclusive bool, s *Canceller) error {
	if s == nil {
		return c.lock(exclusive)
	}
	if c.tryLock(exclusive) {
		return nil
	}
	return c.t.w.cancellable(s, func() error { return c.lock(exclusive) },
		func() { _ = c.Unlock(exclusive, nil) }) // an error means that the peer, and its lock, is gone
}

func (c *ControlBlock) lock(exclusive bool) error {
	ticket, err := c.add(wordNext, 1)
	if err == nil {
		err = c.await(wordServing, ticket)
	}
	switch {
	case err != nil:
		return err
	case exclusive:
		return c.await(wordSharers, 0)
	}
	if _, err = c.add(wordSharers, 1); err == nil {
		_, err = c.add(wordServing, 1)
	}
	return err
}

// tryLock takes the target's lock if it is mapped, and nobody holds or wants it.
func (c *ControlBlock) tryLock(exclusive bool) bool {
	next := c.word(wordNext)
	if next == nil {
		return false
	}
	serving, sharers := c.word(wordServing), c.word(wordSharers)
	ticket := atomic.LoadUint64(serving)
	if exclusive && atomic.LoadUint64(sharers) != 0 || !atomic.CompareAndSwapUint64(next, ticket, ticket+1) {
		return false
	}
	switch {
	case !exclusive:
		atomic.AddUint64(sharers, 1)
		atomic.AddUint64(serving, 1)
	case atomic.LoadUint64(sharers) != 0: // a sharer has come meanwhile
		atomic.AddUint64(serving, 1)
		return false
	}
	return true
}

// Unlock releases the lock that Lock took. The caller flushes its operations before. With a Canceller it does
// not wait for the target, only for room; if s ends first the lock is not released.
func (c *ControlBlock) Unlock(exclusive bool, s *Canceller) error {
	word, by := wordServing, uint64(1)
	if !exclusive {
		word, by = wordSharers, ^uint64(0)
	}
	if s != nil {
		return c.beginAdd(word, by, s)
	}
	_, err := c.add(word, by)
	return err
}

// suspectAfter is how long a wait for a lock may last before this rank checks that all others are alive.
const suspectAfter = time.Second

// await waits until a control word has a value. It fails if a rank of the window has failed, since that rank
// may have held the lock or an earlier ticket.
func (c *ControlBlock) await(word int, value uint64) error {
	var began time.Time
	var wait lockWait
	suspected := false
	for try := c.t.w.firstTry(); ; try++ {
		v, err := c.load(word)
		if err == nil && v != value {
			err = c.t.w.anyFailed()
		}
		if err != nil || v == value {
			wait.end(c.t)
			return err
		}
		if try > lockSpins {
			wait.describe(c.t)
		}
		if began.IsZero() {
			began = time.Now()
		}
		c.t.w.pause(try)
		if !suspected && try > lockSpins && time.Since(began) > suspectAfter {
			suspected = true
			c.t.w.connectAll()
		}
	}
}

// lockWait is a goroutine's wait for a lock. It does not sleep in the engine, but polls the lock, and
// describes itself for Describe at such a poll.
type lockWait struct {
	goroutine uint64
	began     time.Time
	question  uint64 // number of the latest Describe at the last poll
}

// describe describes the wait if Describe is running and this goroutine has polled the lock since Describe
// began. It is called after each poll.
func (l *lockWait) describe(t *Target) {
	e := t.w.e
	if !e.mu.TryLock() && !e.mu.takeTurn(0) {
		return
	}
	defer e.mu.Unlock()
	w := &e.waiting
	if l.goroutine == 0 {
		l.goroutine, l.began = program.GoroutineID(), time.Now()
		if w.forLocks == nil {
			w.forLocks = map[uint64]bool{}
		}
		w.forLocks[l.goroutine] = true
	}
	d := &w.descriptions
	if w.describing.Load() && l.question == d.question && d.waits[l.goroutine] == nil {
		callers := make([]uintptr, maxCallers)
		d.waits[l.goroutine] = &Wait{Goroutine: l.goroutine, Since: time.Since(l.began),
			Callers:    callers[:runtime.Callers(2, callers)],
			Operations: []Operation{{Lock: true, Context: t.w.id, Peer: t.rank}}}
	}
	l.question = d.question
}

func (l *lockWait) end(t *Target) {
	if l.goroutine != 0 {
		t.w.e.mu.Lock()
		delete(t.w.e.waiting.forLocks, l.goroutine)
		t.w.e.mu.Unlock()
		if t.w.e.hook != nil {
			t.w.e.hook.slept(time.Since(l.began))
		}
	}
}

// lockSpins is how often a rank polls a lock before it sleeps between two polls.
const lockSpins = 200

// sleepBetweenPolls returns the length of the n-th sleep: a microsecond longer each time at first, then about
// a hundredth of the time waited so far, and at most 50 ms.
func sleepBetweenPolls(n int) time.Duration {
	const steps, growth, longest = 200, 1.01, 50e6 // ns
	if n <= steps {
		return time.Duration(n) * time.Microsecond
	}
	return time.Duration(min(steps*1e3*math.Pow(growth, float64(n-steps)), longest))
}

// firstTry returns the number of the first poll of a lock. With Turns a poll finds nothing new unless another
// rank has had a turn, so there are few polls before the first sleep.
func (w *Window) firstTry() int {
	if w.e.mu.turns == nil {
		return 0
	}
	return lockSpins - 8
}

// lockSleep returns the length of the n-th sleep between polls. With Turns time passes at once, so sleeps
// cost nothing: each is twice as long as the one before. The limit lets the goroutine answer Describe in
// time, which takes two polls, and more if one finds the engine locked.
func (w *Window) lockSleep(n int) time.Duration {
	if w.e.mu.turns == nil {
		return sleepBetweenPolls(n)
	}
	return min(time.Microsecond<<min(n, 20), describeWithin/4)
}

// pause waits between two polls, and makes progress meanwhile.
func (w *Window) pause(try int) {
	if w.e.mu.TryLock() || w.e.mu.takeTurn(0) {
		if w.e.stopped == nil && !w.e.completionHandler.active() {
			w.e.progress.poll()
		}
		w.e.mu.Unlock()
	}
	switch {
	case try > lockSpins:
		time.Sleep(w.lockSleep(try - lockSpins))
		if w.e.mu.takeTurn(0) { // wait for this goroutine's turn: others wake at the same time
			w.e.mu.Unlock()
		}
	case w.e.waiting.spinTime == 0:
		w.e.waiting.yieldCore(try)
	case try%passesPerYield == 0:
		runtime.Gosched()
	}
}

// SleepUntil blocks until cond returns true or s ends. It returns nil in the first case, the reason in the
// second. The goroutine that makes cond true then calls WakeSleepers. SleepUntil does not spin, since another
// goroutine of this rank makes the progress.
func (w *Window) SleepUntil(cond func() bool, s *Canceller) error {
	e := w.e
	over := func() bool { return cond() || s.Err() != nil || e.stopped != nil }
	for {
		e.mu.Lock()
		if over() {
			e.waiting.passOwnershipLocked()
			err := e.stopped
			e.mu.Unlock()
			if cond() {
				return nil
			}
			return cmp.Or(s.Err(), err)
		}
		e.mu.Unlock()
		e.waiting.sleep(0, nil, over, nil)
	}
}

// WakeSleepers makes calls of SleepUntil check their conditions.
func (w *Window) WakeSleepers() { w.e.Probes.Wake() }

// anyFailed returns the failure of a rank of the window, or of this rank, or that the window was revoked;
// else nil.
func (w *Window) anyFailed() error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.e.stopped != nil {
		return w.e.stopped
	}
	if err := w.e.Recovery.revokedErr(w.id); err != nil || len(w.e.failures.peers) == 0 {
		return err
	}
	for i := range w.targets {
		if err := w.targets[i].unusableLocked(); err != nil {
			return err
		}
	}
	return nil
}

// connectAll begins a connection to every rank of the window that has none, so that a failed one is found.
func (w *Window) connectAll() {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	for i := range w.targets {
		if w.e.stopped == nil {
			w.e.Recovery.connect(w.targets[i].rank)
		}
	}
}

// add adds to a control word, and returns its old value.
func (c *ControlBlock) add(word int, by uint64) (uint64, error) {
	if at := c.word(word); at != nil {
		return atomic.AddUint64(at, by) - by, nil
	}
	return c.operation(transport.OpFetchAdd, word, by)
}

// load reads a control word.
func (c *ControlBlock) load(word int) (uint64, error) {
	if at := c.word(word); at != nil {
		return atomic.LoadUint64(at), nil
	}
	return c.operation(transport.OpRead, word, 0)
}

func (c *ControlBlock) word(word int) *uint64 {
	base := c.at.Load()
	if base == nil {
		return nil
	}
	return (*uint64)(unsafe.Add(unsafe.Pointer(base), word))
}

// operation executes an operation on a control word through the queue pair, and returns its old value.
func (c *ControlBlock) operation(op transport.Opcode, word int, operand uint64) (uint64, error) {
	e := c.t.w.e
	e.mu.Lock()
	p, err := c.t.reachLocked(nil)
	if err != nil {
		e.mu.Unlock()
		return 0, err
	}
	if c.at.Load() != nil { // it is mapped now
		e.mu.Unlock()
		if op == transport.OpRead {
			return c.load(word)
		}
		return c.add(word, operand)
	}
	v, err := c.fetchLocked(p, op, word, operand)
	e.mu.Unlock()
	return v, err
}

// beginAdd adds to a control word, without waiting for completion.
func (c *ControlBlock) beginAdd(word int, by uint64, s *Canceller) error {
	if at := c.word(word); at != nil {
		atomic.AddUint64(at, by)
		return nil
	}
	c.t.w.e.mu.Lock()
	defer c.t.w.e.mu.Unlock()
	p, err := c.t.reachLocked(s)
	if err != nil {
		return err
	}
	o, err := c.t.newOperationLocked(p, s)
	if err != nil {
		return err
	}
	o.setTransfer(transport.OpFetchAdd, wordBytes, c.t.keys.Control, word)
	o.wr.Operand = by
	return c.t.postOperationLocked(p, o, s)
}

// fetchLocked executes a Read or an Atomic of a control word and returns the result. It releases the lock
// while it waits.
func (c *ControlBlock) fetchLocked(p *peer, op transport.Opcode, word int, operand uint64) (uint64, error) {
	t, e := c.t, c.t.w.e
	e.mu.assertHeld()
	o, err := t.newOperationLocked(p, nil)
	if err != nil {
		return 0, err
	}
	o.kept = true
	o.setTransfer(op, wordBytes, t.keys.Control, word)
	o.wr.Operand = operand
	if err := t.postOperationLocked(p, o, nil); err != nil {
		return 0, err
	}
	if !o.done {
		e.mu.Unlock()
		e.waiting.waitUntil(0, nil, o.ended)
		e.mu.Lock()
	}
	v, err := o.word(), o.err
	t.dropLocked(o)
	return v, err
}
