package mpi

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// tell sends a message of Post or Complete through the window's communicator or a handle to it.
func (w *window) tell(c *Comm, rank, tag int) error {
	err := c.checkCall()
	if err == nil {
		err = c.waitFor(c.e.Sends.Isend(contextid.Exposure.In(c.context), nil, c.worldRank(rank), tag))
	}
	return c.fail("Send", rank, NoPeer, err)
}

// hear waits for a message of Post or Complete.
func (w *window) hear(rank, tag int) error {
	c := w.via
	err := c.checkCall()
	if err == nil {
		err = c.waitFor(c.e.Recvs.Irecv(contextid.Exposure.In(c.context), nil, c.worldRank(rank), tag, 1))
	}
	return c.fail("Recv", rank, NoPeer, err)
}

// waitFor waits for a message that has been begun.
func (c *Comm) waitFor(h engine.Request, err error) error {
	if err == nil {
		c.e.Cancels.Bind(h, c.canceller)
		_, err = c.e.Requests.Wait(h)
	}
	return err
}

// Post exposes this rank's part to the ranks of a group, whose Start waits for it (MPI 4.1, 12.5.2). Post
// does not wait for them. Wait ends the exposure. If ranks of the group have failed, the error is
// ErrProcFailed, and the part is still exposed to the others. If the context of the handle ends first, the
// part is exposed to the ranks that had been notified by then, and Wait waits for these.
func (w *Win[T]) Post(g *Group) error {
	return w.base().run(engine.CallPost, NoPeer, func(w *window) error { return w.post(g) })
}

func (w *window) post(g *Group) error {
	if err := w.leaveFence(); err != nil {
		return err
	}
	ranks, err := w.members(g)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.posted != nil {
		return fmt.Errorf("%w: Post before the Wait of the last one", ErrEpoch)
	}
	var first error
	for i, rank := range ranks {
		// to all, even after an error: the remaining ranks wait in Start
		err := w.tell(w.via, rank, contextid.PostTag)
		if w.gaveUp(err) {
			w.posted = ranks[:i]
			return err
		}
		if first == nil {
			first = err
		}
	}
	w.posted = ranks
	return first
}

// Start opens an epoch for the parts of the ranks of a group, once they have called Post for this rank (MPI
// 4.1, 12.5.2). If one of them has failed, the error is ErrProcFailed and no epoch is open; the Wait of the
// others ends as after Complete. If the context of the handle ends first, no epoch is open, and the Posts
// that have arrived count for the next Start.
func (w *Win[T]) Start(g *Group) error {
	return w.base().run(engine.CallStart, NoPeer, func(w *window) error { return w.startEpoch(g) })
}

func (w *window) startEpoch(g *Group) error {
	if err := w.leaveFence(); err != nil {
		return err
	}
	if w.holds() {
		return fmt.Errorf("%w: Start while another epoch is open", ErrEpoch)
	}
	ranks, err := w.members(g)
	if err != nil {
		return err
	}
	if err := w.awaitPosts(ranks); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = ranks
	for _, rank := range ranks {
		w.access[rank].Store(accessStarted)
	}
	return nil
}

// awaitPosts waits for the Post of all ranks. After an error it ends the Wait of those that have posted.
func (w *window) awaitPosts(ranks []int) (first error) {
	var posted []int
	for _, rank := range ranks {
		err := w.awaitPost(rank)
		if w.gaveUp(err) {
			w.keepPosts(posted)
			return err
		}
		if err == nil {
			posted = append(posted, rank)
		} else if first == nil {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	for _, rank := range posted {
		_ = w.tell(w.comm, rank, contextid.CompleteTag) // if this fails nobody waits for it
	}
	return first
}

// awaitPost takes a rank's Post: one that arrived for an earlier Start, or the next.
func (w *window) awaitPost(rank int) error {
	w.mu.Lock()
	kept := w.arrived[rank] > 0
	if kept {
		w.arrived[rank]--
	}
	w.mu.Unlock()
	if kept {
		return nil
	}
	return w.hear(rank, contextid.PostTag)
}

// keepPosts keeps arrived Posts for the next Start.
func (w *window) keepPosts(ranks []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.arrived == nil {
		w.arrived = map[int]int{}
	}
	for _, rank := range ranks {
		w.arrived[rank]++
	}
}

// Complete closes the epoch that Start opened: all operations are complete, at this rank and at their targets
// (MPI 4.1, 12.5.2). If the context of the handle ends first, the epoch stays open for the ranks whose parts
// are not complete, and the program must call Complete again.
func (w *Win[T]) Complete() error {
	return w.base().run(engine.CallComplete, NoPeer, (*window).complete)
}

func (w *window) complete() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started == nil {
		return fmt.Errorf("%w: Complete without Start", ErrEpoch)
	}
	var first error
	for i, rank := range w.started {
		err := w.w.Target(rank).Flush(w.via.canceller)
		if err == nil {
			err = w.tell(w.via, rank, contextid.CompleteTag)
		}
		if w.gaveUp(err) {
			w.started = w.started[i:]
			return err
		}
		w.access[rank].Store(accessNone)
		if first == nil {
			first = err
		}
	}
	w.started = nil
	return first
}

// Wait ends what Post began, when all ranks of its group have called Complete: what they have done to this
// rank's part is then visible (MPI 4.1, 12.5.2). If one of them has failed, Wait returns ErrProcFailed after
// the others have called Complete. If the context of the handle ends first, the program must call Wait again;
// it then waits for those that have not called Complete yet.
func (w *Win[T]) Wait() error {
	return w.base().run(engine.CallWinWait, NoPeer, (*window).waitPosted)
}

func (w *window) waitPosted() error {
	w.mu.Lock()
	ranks := w.posted
	w.mu.Unlock()
	if ranks == nil {
		return fmt.Errorf("%w: Wait without Post", ErrEpoch)
	}
	var first error
	for i, rank := range ranks {
		err := w.hear(rank, contextid.CompleteTag)
		if w.gaveUp(err) {
			w.mu.Lock()
			w.posted = ranks[i:]
			w.mu.Unlock()
			return err
		}
		if err != nil && !errors.Is(err, ErrProcFailed) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	w.mu.Lock()
	w.posted = nil
	w.mu.Unlock()
	return first
}

// members returns the ranks of a group in the window.
func (w *window) members(g *Group) ([]int, error) {
	if g == nil {
		return nil, fmt.Errorf("%w: the group is nil", ErrArg)
	}
	all := make([]int, g.Size())
	for i := range all {
		all[i] = i
	}
	ranks := g.Translate(all, w.comm.Group())
	for i, rank := range ranks {
		if rank == Undefined {
			return nil, fmt.Errorf("%w: rank %d of the group is not in the window", ErrRank, i)
		}
	}
	return ranks, nil
}
