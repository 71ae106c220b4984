package mpi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Win is a window: memory of every rank of a communicator that the other ranks read and write without that
// rank taking part (MPI 4.1, chapter 12). Offsets and counts are in elements. The parts of different ranks
// may have different sizes.
//
// Operations take place within epochs, which a rank opens and closes by Fence, Lock or LockAll, or Start.
// They are complete when the epoch is closed, or after a Flush; until then their buffers belong to weft. An
// operation outside an epoch, out of bounds, or on a window that was freed fails at the calling rank and
// changes nothing. docs/internals/spec/windows.md specifies when each rank sees which changes.
//
// Several goroutines may use a Win at the same time.
type Win[T any] struct {
	window
	local []T
	calls *sync.Pool // of *cells[T]
}

// window is a handle to a window of any element type. Here the part of a rank is its memory in the window.
type window struct {
	*windowState
	via *Comm // the window's communicator; of WithContext, with a canceller
	// operations take the slow path even on mapped memory: there is a canceller, or an engine.Hook, by which
	// traces and other observers hear of calls
	slowPath bool
}

// windowState is the state that all handles to a window share.
type windowState struct {
	comm      *Comm // of its own
	w         *engine.Window
	elem      int
	operators uint32          // a bit for each operator of accumulates
	dynamic   bool            // the window is dynamic
	sizes     []int           // elements of each rank's part; 0 in a dynamic window
	epoch     atomic.Uint32   // epochNone, epochFence or epochAll
	access    []atomic.Uint32 // access to each target: accessNone and so on
	owned     []byte          // memory that Free frees
	freed     atomic.Bool
	// operations must make all checks: the window is freed, or its rank has called Finalize or has stopped
	closed atomic.Bool

	mu              *engine.Lock
	posted, started []int       // ranks of the last Post and Start; nil for none
	arrived         map[int]int // Posts that have arrived for a cancelled Start, by rank
}

// WinAllocate makes a window with n elements of newly allocated, zeroed memory at this rank (MPI 4.1,
// 12.2.2). It is collective. Ranks of the same host access this memory by loads and stores.
func WinAllocate[T any](c *Comm, n int) (*Win[T], error) {
	defer c.beginLong(engine.CallWinAllocate).end()
	return allocateWindow[T](c, n, "WinAllocate")
}

func allocateWindow[T any](c *Comm, n int, op string) (*Win[T], error) {
	if err := c.check(); err != nil {
		return nil, c.failColl(op, err)
	}
	var mem []byte
	_, err := bytesOf[T](nil)
	switch {
	case err != nil:
	case n < 0 || n > math.MaxInt/sizeOf[T]():
		err = fmt.Errorf("%w: a window of %d elements", ErrCount, n)
	case n > 0:
		mem, err = c.job.hub.Memory.Alloc(n * sizeOf[T]())
	}
	w, err := makeWindow[T](c, mem, false, err)
	if err != nil {
		if mem != nil && !errors.Is(err, errPartKept) {
			err = errors.Join(err, c.job.hub.Memory.Free(mem))
		}
		return nil, c.failColl(op, err)
	}
	w.owned = mem
	return w, nil
}

// WinCreate makes a window from existing memory of this rank (MPI 4.1, 12.2.1). It is collective. Ranks of
// the same host access memory of Alloc by loads and stores, and other memory with the help of this rank's
// calls. The memory of buf must stay in place, and must not be freed, until the window is freed.
func WinCreate[T any](c *Comm, buf []T) (*Win[T], error) {
	defer c.beginLong(engine.CallWinCreate).end()
	if err := c.check(); err != nil {
		return nil, c.failColl("WinCreate", err)
	}
	mem, err := bytesOf(buf)
	w, err := makeWindow[T](c, mem, false, err)
	return w, c.failColl("WinCreate", err)
}

// WinAllocateShared is WinAllocate for ranks that share memory: each rank can access the parts of all others
// by Of (MPI 4.1, 12.2.3). If some ranks of the communicator do not share memory, it fails with ErrWin at all
// ranks.
func WinAllocateShared[T any](c *Comm, n int) (*Win[T], error) {
	defer c.beginLong(engine.CallWinAllocateShared).end()
	w, err := allocateWindow[T](c, n, "WinAllocateShared")
	if err != nil {
		return nil, err
	}
	within := w.comm.within(c)
	for rank := range w.sizes {
		t := w.w.Target(rank)
		if err = t.Reach(within.canceller); err != nil {
			break
		}
		if !t.Mapped() {
			err = fmt.Errorf("%w: the memory of rank %d is not shared with rank %d; they are on different "+
				"hosts, or not connected by fabric shm", ErrWin, rank, w.comm.rank)
			break
		}
	}
	// all or nobody
	bad := []int32{0}
	if err != nil {
		bad[0] = 1
	}
	if err2 := Allreduce(within, InPlace[int32](), bad, Max[int32]()); err == nil && err2 != nil {
		err = err2
	} else if err == nil && bad[0] != 0 {
		err = fmt.Errorf("%w: another rank does not share memory with all", ErrWin)
	}
	if isLoss(err) || err != nil && c.canceller.Err() != nil {
		w.abandonNew(err)
	} else if err != nil {
		err = errors.Join(err, w.release())
	}
	if err != nil {
		return nil, c.failColl("WinAllocateShared", err)
	}
	return w, nil
}

// makeWindow agrees with the other ranks on a window. A rank that cannot make its part participates with its
// error, so that the call fails at all ranks.
func makeWindow[T any](c *Comm, mem []byte, dynamic bool, broken error) (*Win[T], error) {
	own, err := c.Dup()
	if err != nil {
		return nil, err
	}
	var w *engine.Window
	card := engine.WindowCard{Failed: 1}
	switch {
	case broken != nil:
	case dynamic:
		w, card, broken = own.e.Windows.NewDynamic(own.context, windowType[T]())
	default:
		w, card, broken = own.e.Windows.New(own.context, mem, windowType[T]())
	}
	cards := make([]engine.WindowCard, c.size)
	if err = Allgather(own.within(c), []engine.WindowCard{card}, cards); broken == nil {
		broken = err
	}
	elem := sizeOf[T]()
	x := window{&windowState{mu: own.e.NewLock(), comm: own, w: w, elem: elem, sizes: make([]int, c.size),
		dynamic: dynamic,
		access:  make([]atomic.Uint32, c.size)}, own, c.job.hub.Hooked()}
	worlds := make([]int, c.size)
	for rank, k := range cards {
		worlds[rank] = c.worldRank(rank)
		switch {
		case broken != nil:
		case k.Failed != 0:
			broken = fmt.Errorf("%w: rank %d has failed to make its part", ErrWin, rank)
		case int(k.Elem) != elem:
			broken = fmt.Errorf("%w: elements of %d bytes at rank %d, of %d here", ErrType, k.Elem, rank,
				elem)
		case (k.Dynamic != 0) != dynamic:
			broken = fmt.Errorf("%w: one of the ranks %d and %d called WinCreateDynamic, and the "+
				"other did not", ErrWin, rank, c.rank)
		default:
			x.sizes[rank] = int(k.Bytes) / elem
		}
	}
	if broken != nil {
		if w != nil {
			broken = errors.Join(broken, w.Discard())
		}
		return nil, errors.Join(broken, own.Free())
	}
	w.Join(c.rank, worlds, cards)
	x.operators = operatorSet(w.Type())
	own.window.Store(&x)
	if c.job.ended.Load() || c.job.hub.Stopped() != nil { // else disableFastPath finds the window
		x.closed.Store(true)
	}
	// No rank accesses a part before its owner has the window.
	if err := Barrier(own.within(c)); err != nil {
		x.abandonNew(err)
		return nil, fmt.Errorf("%w: %w", errPartKept, err)
	}
	return &Win[T]{window: x, local: elements[T](mem), calls: &sync.Pool{}}, nil
}

// Local returns this rank's part. While an epoch is open, other ranks may access it at the same time: the
// program must then read and write it with sync/atomic, or under the lock of this rank.
func (w *Win[T]) Local() []T { return w.local }

// Of returns a rank's part of a window of WinAllocateShared, mapped into this process, for loads and stores
// including those of sync/atomic. It returns nil for a window of another kind whose part is not mapped here.
// The memory must not be accessed after Free.
func (w *Win[T]) Of(rank int) []T {
	if w.base() == nil || w.freed.Load() || uint(rank) >= uint(len(w.sizes)) {
		return nil
	}
	t := w.w.Target(rank)
	if t.Reach(w.via.canceller) != nil || !t.Mapped() {
		return nil
	}
	return unsafe.Slice((*T)(t.Base()), w.sizes[rank])
}

// Comm returns the window's own communicator, which has the ranks of the one that the window was made from.
// The program may send and receive any messages on it. Fence and Free count as collective calls of it.
func (w *Win[T]) Comm() *Comm { return w.comm }

// Size returns the number of elements of a rank's part; 0 for a dynamic window.
func (w *Win[T]) Size(rank int) int { return w.sizes[rank] }

// Free frees the window, once all operations on it are complete (MPI 4.1, 12.2.5). It is collective, and
// returns when all ranks have called it. It releases the memory of WinAllocate and WinAllocateShared, which
// the program must not access any more.
//
// If a rank of the window has failed, or its communicator was revoked, Free may not wait for the others, and
// returns ErrProcFailed or ErrRevoked. The window is freed at this rank all the same, whatever epoch is open.
// Since others may still access its memory, that memory stays in place until Finalize. The same holds if the
// context of the handle ends first.
func (w *Win[T]) Free() error {
	call := w.base().beginLong(engine.CallWinFree, NoPeer)
	err := w.base().free()
	if isLoss(err) || w.base().gaveUp(err) {
		w.base().abandon()
	}
	call.end()
	return w.base().fail(engine.CallWinFree, NoPeer, err)
}

func (w *window) free() error {
	if err := w.check(); err != nil {
		return err
	}
	err := w.w.FlushAll(w.via.canceller)
	if err == nil {
		err = w.comm.check()
	}
	if err == nil {
		err = w.w.AwaitGivenUp(w.via.canceller)
	}
	if err == nil && w.holds() {
		err = fmt.Errorf("%w: Free while a lock is held or a Start is open", ErrEpoch)
		if failed := w.comm.Failed(); len(failed) > 0 {
			err = fmt.Errorf("%w: rank %d of the window", ErrProcFailed, failed[0])
		}
	}
	if err == nil {
		err = Barrier(w.via)
	}
	if err != nil {
		return err
	}
	if !w.freed.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: it has been freed", ErrWin)
	}
	return w.release()
}

// release frees the resources of this rank.
func (w *window) release() error {
	w.abandon()
	err := w.w.Free()
	if w.owned != nil {
		err = errors.Join(err, w.comm.job.hub.Memory.Free(w.owned))
		w.owned = nil
	}
	return errors.Join(err, w.comm.Free())
}

// abandon frees the window locally after Free has failed to synchronize. Surviving ranks may still access
// this rank's part, so it stays registered and the communicator's context id stays reserved.
func (w *window) abandon() {
	w.freed.Store(true)
	w.closed.Store(true)
}

// abandonNew is abandon for a window whose creation failed here. Other ranks may have it and wait for this
// one there, so it revokes the window's communicator: the program has no handle to do that.
func (w *window) abandonNew(why error) {
	w.abandon()
	if isLoss(why) {
		_ = w.comm.Revoke() // it fails only after the end of the job
	}
}

// gaveUp reports whether an error is that the context of the handle has ended.
func (w *window) gaveUp(err error) bool {
	return err != nil && w != nil && w.windowState != nil && w.via.canceller.Err() != nil
}

// errPartKept marks the error of a window whose creation failed here, but whose part stays because others may
// have the window.
var errPartKept = errors.New("the window may exist at other ranks")

// isLoss reports whether an error is that ranks have failed, or that the communicator was revoked.
func isLoss(err error) bool { return errors.Is(err, ErrProcFailed) || errors.Is(err, ErrRevoked) }

// WithContext returns another handle to the window, whose calls end with ctx: they fail with an error that
// wraps ctx.Err(), and once ctx has ended, every call fails at once. Calls through other handles are not
// affected.
//
// A call that fails because ctx has ended leaves this state:
//
//   - Lock: this rank does not have the lock, and passes its turn in the queue on when the turn comes.
//   - Put, Get and the accumulates, which may wait for room or for a connection: the operation has not begun.
//     An accumulate of more than 512 bytes may have changed the first elements.
//   - FetchAndOp and CompareAndSwap: the element may have been changed, or may still be changed until a
//     Flush.
//   - The requests of Rput, Rget, Raccumulate and RgetAccumulate: the operation goes on.
//   - Flush and FlushLocal, and FlushAll and FlushLocalAll: the operations go on.
//   - Unlock, UnlockAll and Complete: the epoch is still open for the ranks where it was not closed.
//   - Fence: it counts as called, and no epoch is open.
//   - Post, Start, Wait, Free, Attach and Detach: as their comments say.
//
// The buffers of an operation that goes on belong to weft until a Flush through another handle has returned,
// or the epoch is closed. The calls that create a window end with the context of the communicator's handle,
// and the window does not inherit that context. If such a call fails, the window does not exist at this rank,
// but may exist at others.
func (w *Win[T]) WithContext(ctx context.Context) *Win[T] {
	if w.base() == nil {
		return w // its calls return the error
	}
	handle := *w
	handle.via = w.comm.WithContext(ctx)
	handle.slowPath = handle.via.canceller != nil || w.comm.job.hub.Hooked()
	return &handle
}

// base returns the window, or nil.
func (w *Win[T]) base() *window {
	if w == nil || w.windowState == nil {
		return nil
	}
	return &w.window
}

// check refuses a window that cannot be used.
func (w *window) check() error {
	switch {
	case w == nil:
		return fmt.Errorf("%w: nil", ErrWin)
	case w.freed.Load():
		return fmt.Errorf("%w: it has been freed", ErrWin)
	case w.comm.job.ended.Load():
		return ErrFinalized
	case w.closed.Load():
		// An operation on mapped memory would not find it out from the engine.
		if err := w.comm.job.hub.Stopped(); err != nil {
			return err
		}
	}
	return w.via.canceller.Err()
}

// fail makes the error of a call on the window.
func (w *window) fail(call engine.Call, peer int, err error) error {
	switch {
	case err == nil:
		return nil
	case w == nil:
		return asError(call.String(), err)
	}
	return w.comm.fail(call.String(), peer, NoPeer, err)
}

// blockingCall is a call whose beginning and end are reported to the engine's Hook (traces and other
// observers): one on a window that may block, or Finalize. The zero blockingCall has no Hook.
type blockingCall struct {
	hook  *engine.Hook
	call  engine.Call
	start int64
}

// beginLong tells the engine's Hook that a call on a communicator, which may be nil, begins.
func (c *Comm) beginLong(call engine.Call) blockingCall {
	if c == nil || c.commState == nil || !c.job.hub.Hooked() {
		return blockingCall{}
	}
	h := c.e.Hook()
	return blockingCall{h, call, h.BeginLong(call, NoPeer)}
}

// beginLong tells the engine's Hook that a call on the window, which may be nil, begins, with the rank that
// it names.
func (w *window) beginLong(call engine.Call, rank int) blockingCall {
	if w == nil || !w.comm.job.hub.Hooked() {
		return blockingCall{}
	}
	h := w.comm.e.Hook()
	return blockingCall{h, call, h.BeginLong(call, w.worldRank(rank))}
}

// end tells the Hook that the call ends.
func (l blockingCall) end() {
	if l.hook != nil {
		l.hook.EndLong(l.call, l.start)
	}
}

// run carries out a call that may last, with the rank that it names, on a window that can be used.
func (w *window) run(call engine.Call, rank int, f func(w *window) error) error {
	l := w.beginLong(call, rank)
	err := w.check()
	if err == nil {
		err = f(w)
	}
	l.end()
	return w.fail(call, rank, err)
}

// worldRank is the world rank of a rank of the window; NoPeer if there is none.
func (w *window) worldRank(rank int) int {
	if w.checkRank(rank) != nil {
		return NoPeer
	}
	return w.comm.worldRank(rank)
}
