package mpi

import (
	"cmp"
	"fmt"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// The epoch of a rank that concerns all targets.
const (
	epochNone  = iota // or those of single targets
	epochFence        // Fence was called, and nothing since that ends its epoch
	epochAll          // LockAll: the lock of each target is taken at the first operation on it
)

// The access of a rank to one target. From accessShared on, operations on it are allowed.
const (
	accessNone      = iota
	accessTaking    // the lock is being taken
	accessAwaited   // likewise, and other goroutines sleep until it is taken
	accessShared    // the target's lock is shared by this rank
	accessExclusive // this rank has it alone
	accessStarted   // Start names the target
)

// isLock reports whether an access is a lock.
func isLock(access uint32) bool { return access == accessShared || access == accessExclusive }

// enter refuses an operation on a target outside an epoch.
func (w *window) enter(rank int) error {
	epoch := w.epoch.Load()
	switch {
	case epoch == epochFence, w.access[rank].Load() >= accessShared:
		return nil
	case epoch == epochAll:
		return w.lock(rank, accessShared)
	}
	return fmt.Errorf("%w: no epoch for rank %d is open; Fence, Lock, LockAll or Start opens one", ErrEpoch,
		rank)
}

// holds reports whether an epoch is open that the rank must close.
func (w *window) holds() bool {
	if w.epoch.Load() == epochAll {
		return true
	}
	for rank := range w.access {
		if w.access[rank].Load() != accessNone {
			return true
		}
	}
	return false
}

// locked lists the world ranks whose parts this rank has locked.
func (w *window) locked() (ranks []int) {
	for rank := range w.access {
		if isLock(w.access[rank].Load()) {
			ranks = append(ranks, w.comm.worldRank(rank))
		}
	}
	return ranks
}

// openEpochs names the epochs that the program has opened and not closed, on windows of which no rank has
// failed; of those that a Fence has opened, the ones with Puts or Gets.
func (l *comms) openEpochs() (open []string) {
	for _, c := range l.all() {
		w := c.window.Load()
		if w == nil || w.freed.Load() || len(w.comm.Failed()) > 0 || w.comm.revoked.Load() {
			continue
		}
		name := *c.label.Load()
		if w.epoch.Load() == epochAll {
			open = append(open, "LockAll of window "+name+" without UnlockAll")
			continue
		}
		if w.epoch.Load() == epochFence {
			for _, o := range w.w.Open() {
				open = append(open, fmt.Sprintf("%s on rank %d's part of window %s without a Fence after",
					deadlock.Transfers(o.Puts, o.Gets), o.Rank, name))
			}
			continue
		}
		started := false
		for rank := range w.access {
			switch a := w.access[rank].Load(); {
			case isLock(a):
				open = append(open, fmt.Sprintf("Lock of rank %d's part of window %s without Unlock", rank,
					name))
			case a == accessStarted:
				started = true
			}
		}
		if started {
			open = append(open, "Start of window "+name+" without Complete")
		}
	}
	return open
}

// Fence closes the previous epoch and opens the next, for all ranks (MPI 4.1, 12.5.1). It is collective: when
// it returns, all earlier operations of all ranks are complete, at the caller and at their targets. Lock,
// LockAll, Start and Post end the epoch that a Fence opened.
func (w *Win[T]) Fence() error {
	return w.base().run(engine.CallFence, NoPeer, (*window).fence)
}

func (w *window) fence() error {
	if w.holds() {
		return fmt.Errorf("%w: Fence while a lock is held or a Start is open", ErrEpoch)
	}
	err := w.w.FlushAll(w.via.canceller)
	if err == nil || w.gaveUp(err) { // a cancelled Fence counts as called
		err = cmp.Or(Barrier(w.via), err)
	}
	if w.gaveUp(err) {
		w.epoch.CompareAndSwap(epochFence, epochNone)
	}
	if err == nil {
		w.epoch.Store(epochFence)
	}
	return err
}

// leaveFence ends the epoch of the last Fence.
func (w *window) leaveFence() error {
	if w.epoch.Load() != epochFence {
		return nil
	}
	err := w.w.FlushAll(w.via.canceller)
	if !w.gaveUp(err) {
		w.epoch.CompareAndSwap(epochFence, epochNone)
	}
	return err
}

// LockMode is the mode of a lock: shared or exclusive.
type LockMode bool

const (
	// Shared is compatible with other Shared locks (MPI_LOCK_SHARED).
	Shared LockMode = false
	// Exclusive excludes all other locks (MPI_LOCK_EXCLUSIVE).
	Exclusive LockMode = true
)

// Lock opens an epoch for one rank's part (MPI 4.1, 12.5.3), Shared or Exclusive. It returns when this rank
// has the lock; ranks get it in the order of their calls. If a rank of the window fails while this one
// waits, the error is ErrProcFailed, because the lock may never become free. A Revoke of the window's
// communicator also ends the wait.
func (w *Win[T]) Lock(rank int, mode LockMode) error {
	kind := uint32(accessShared)
	if mode == Exclusive {
		kind = accessExclusive
	}
	return w.base().run(engine.CallLock, rank, func(w *window) error {
		if err := w.checkRank(rank); err != nil {
			return err
		}
		if err := w.leaveFence(); err != nil {
			return err
		}
		if w.epoch.Load() == epochAll {
			return fmt.Errorf("%w: Lock within LockAll", ErrEpoch)
		}
		return w.lock(rank, kind)
	})
}

// lock takes a target's lock. One goroutine takes it; others that need it for LockAll sleep meanwhile.
func (w *window) lock(rank int, kind uint32) error {
	a := &w.access[rank]
	for !a.CompareAndSwap(accessNone, accessTaking) {
		switch now := a.Load(); {
		case now == accessNone: // whoever was taking it has failed
		case w.epoch.Load() != epochAll:
			return fmt.Errorf("%w: this rank has an epoch for rank %d already", ErrEpoch, rank)
		case now >= accessShared: // another goroutine has taken it for LockAll
			return nil
		case now == accessAwaited || a.CompareAndSwap(accessTaking, accessAwaited):
			taken := func() bool { return a.Load() != accessAwaited }
			if err := w.w.SleepUntil(taken, w.via.canceller); err != nil {
				return err
			}
		}
	}
	err := w.w.Target(rank).Control.Lock(kind == accessExclusive, w.via.canceller)
	if err != nil {
		kind = accessNone
	}
	if a.Swap(kind) == accessAwaited {
		w.w.WakeSleepers()
	}
	return err
}

// Unlock closes the epoch that Lock opened: all operations on the rank's part are complete, at this rank and
// at the target, and the lock is released (MPI 4.1, 12.5.3).
func (w *Win[T]) Unlock(rank int) error {
	return w.base().run(engine.CallUnlock, rank, func(w *window) error {
		if err := w.checkRank(rank); err != nil {
			return err
		}
		if w.epoch.Load() == epochAll {
			return fmt.Errorf("%w: Unlock within LockAll; UnlockAll ends that", ErrEpoch)
		}
		return w.unlock(rank)
	})
}

func (w *window) unlock(rank int) error {
	a := w.access[rank].Load()
	if !isLock(a) {
		return fmt.Errorf("%w: this rank does not have the lock of rank %d", ErrEpoch, rank)
	}
	t := w.w.Target(rank)
	err := t.Flush(w.via.canceller)
	if w.gaveUp(err) {
		return err
	}
	// Release the lock even after an error: others may wait for it.
	if err2 := t.Control.Unlock(a == accessExclusive, w.via.canceller); w.gaveUp(err2) {
		return err2
	} else if err == nil {
		err = err2
	}
	w.access[rank].Store(accessNone)
	return err
}

// LockAll opens an epoch for the parts of all ranks, with shared locks (MPI 4.1, 12.5.3). It does not block:
// the first operation on a rank's part takes that rank's lock.
func (w *Win[T]) LockAll() error {
	return w.base().run(engine.CallLockAll, NoPeer, func(w *window) error {
		if err := w.leaveFence(); err != nil {
			return err
		}
		if w.holds() {
			return fmt.Errorf("%w: LockAll while another epoch is open", ErrEpoch)
		}
		w.epoch.Store(epochAll)
		return nil
	})
}

// UnlockAll closes the epoch that LockAll opened: all operations are complete, at this rank and at their
// targets.
func (w *Win[T]) UnlockAll() error {
	return w.base().run(engine.CallUnlockAll, NoPeer, (*window).unlockAll)
}

func (w *window) unlockAll() (first error) {
	if w.epoch.Load() != epochAll {
		return fmt.Errorf("%w: UnlockAll without LockAll", ErrEpoch)
	}
	for rank := range w.access {
		if w.access[rank].Load() == accessNone {
			continue
		}
		err := w.unlock(rank)
		if w.gaveUp(err) {
			return w.fail(engine.CallUnlockAll, rank, err)
		}
		first = cmp.Or(first, err)
	}
	w.epoch.Store(epochNone)
	return first
}

// Flush returns when all operations of this rank on a rank's part are complete, at this rank and at the
// target (MPI 4.1, 12.5.4). It is a full memory barrier: later reads of this rank are ordered after the
// operations.
func (w *Win[T]) Flush(rank int) error {
	return w.base().run(engine.CallFlush, rank, func(w *window) error {
		err := w.checkFlush(rank)
		if err == nil && rank != ProcNull {
			err = w.w.Target(rank).Flush(w.via.canceller)
		}
		return err
	})
}

// FlushLocal returns when the buffers of all operations of this rank on a rank's part may be reused, and
// those of Gets hold the elements. Data that was put may not have arrived yet.
func (w *Win[T]) FlushLocal(rank int) error {
	return w.base().run(engine.CallFlushLocal, rank, func(w *window) error {
		err := w.checkFlush(rank)
		if err == nil && rank != ProcNull {
			err = w.w.Target(rank).FlushLocal(w.via.canceller)
		}
		return err
	})
}

func (w *window) checkFlush(rank int) error {
	if rank == ProcNull {
		return nil
	}
	if err := w.checkRank(rank); err != nil {
		return err
	}
	if w.epoch.Load() == epochNone && w.access[rank].Load() == accessNone {
		return fmt.Errorf("%w: no epoch for rank %d is open", ErrEpoch, rank)
	}
	return nil
}

// FlushAll is Flush for all ranks.
func (w *Win[T]) FlushAll() error {
	return w.base().run(engine.CallFlushAll, NoPeer, func(w *window) error {
		return w.w.FlushAll(w.via.canceller)
	})
}

// FlushLocalAll is FlushLocal for all ranks.
func (w *Win[T]) FlushLocalAll() error {
	return w.base().run(engine.CallFlushLocalAll, NoPeer, func(w *window) error {
		return w.w.FlushLocalAll(w.via.canceller)
	})
}
