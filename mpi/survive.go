package mpi

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/agree"
)

// A job that goes on when ranks fail (weft run --survive) uses these calls, which follow ULFM. Operations
// that need a failed rank return ErrProcFailed; all others go on. docs/guide/failures.md explains the
// patterns.

// Failed lists the ranks of the communicator that this rank knows to have failed, in ascending order. Other
// ranks may know of others.
func (c *Comm) Failed() []int {
	if c == nil || c.commState == nil || c.job.ended.Load() {
		return nil
	}
	var list []int
	for _, world := range c.e.Recovery.Failed() {
		if c.isMember(world) {
			list = append(list, c.localRank(world))
		}
	}
	slices.Sort(list)
	return list
}

// AckFailed acknowledges the failures that Failed lists. From then on, receives and probes from AnySource
// wait only for the remaining ranks; until then they return ErrProcFailed.
func (c *Comm) AckFailed() error {
	if err := c.check(); err != nil && !errors.Is(err, ErrRevoked) {
		return c.failColl("AckFailed", err)
	}
	c.e.Recovery.AckFailed(c.context)
	return nil
}

// Revoke ends the use of the communicator: every current and later operation on it, at any of its ranks,
// returns ErrRevoked, except for Agree, Shrink, Failed, AckFailed and Free. One rank's call is enough, and it
// does not wait for the others. A rank that learns of a failure can thus release its peers from calls in
// which they wait for ranks that have already left the common pattern.
func (c *Comm) Revoke() error {
	err := c.check()
	if errors.Is(err, ErrRevoked) {
		return nil
	}
	if err == nil {
		err = c.e.Recovery.Revoke(c.context)
	}
	return c.failColl("Revoke", err)
}

// Agree returns the bitwise AND of the flags of all ranks. It is collective, and it works on a communicator
// whose ranks have failed or that was revoked: all ranks that return from it return the same result,
// whichever ranks fail in the meantime. If a rank knew of a failure that it had not acknowledged (AckFailed)
// when it called, the error is ErrProcFailed at all ranks, and the flag is still valid. Agree blocks until
// all ranks that have not failed have called it.
func (c *Comm) Agree(flag uint64) (uint64, error) {
	err := c.checkAgreement()
	if err == nil {
		mine := flag
		err = c.inTurn(c.takeTurn(), func() error { return c.agree(&flag) }, func() { _ = c.agree(&mine) })
	}
	return flag, c.failColl("Agree", err)
}

// agree makes one agreement. If there is no error, or it is ErrProcFailed, flag is then the common flag.
func (c *Comm) agree(flag *uint64) error {
	v := agree.Neutral
	v.And = *flag
	if c.e.Recovery.Unacknowledged(c.context) {
		v.Max = 1
	}
	v, err := c.e.Recovery.Agree(c.context, v, c.canceller)
	if err != nil {
		return err
	}
	if *flag = v.And; v.Max > 0 {
		c.job.hub.SomeRankFailed()
		return fmt.Errorf("%w: a failure was not acknowledged by all ranks", ErrProcFailed)
	}
	return nil
}

// checkAgreement is check for calls that work on a revoked communicator.
func (c *Comm) checkAgreement() error {
	if err := c.check(); err != nil && !errors.Is(err, ErrRevoked) {
		return err
	}
	return c.canceller.Err()
}

// Shrink makes a communicator of the remaining ranks, in their current order. It is collective, works on a
// communicator that was revoked, and leaves out the same ranks everywhere: all those whose failure any of the
// callers knew. A rank that fails during the call may be a member of the new communicator; the first
// operation there that needs it returns an error.
func (c *Comm) Shrink() (*Comm, error) {
	if err := c.checkAgreement(); err != nil {
		return nil, c.failColl("Shrink", err)
	}
	var child *Comm
	err := c.inTurn(c.takeTurn(), func() (err error) {
		child, err = c.shrink()
		return err
	}, c.contributeToShrink)
	return child, c.failColl("Shrink", err)
}

func (c *Comm) shrink() (*Comm, error) {
	for {
		left, err := c.agreeOnRanks()
		if err != nil {
			return nil, err
		}
		rank := slices.Index(left, c.rank)
		if rank < 0 {
			return nil, fmt.Errorf("%w: the other ranks consider this rank failed", ErrAborted)
		}
		id, ok, err := c.agreeOnID(left[0])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue // the leader has failed
		}
		world := make([]int32, len(left))
		for i, r := range left {
			world[i] = int32(c.worldRank(r))
		}
		return c.job.newComm(c.childName(id), id, rank, newMembers(world)), nil
	}
}

// agreeOnRanks agrees on the ranks whose failure no caller knows.
func (c *Comm) agreeOnRanks() (left []int, err error) {
	for first := 0; first < c.size; first += agree.SetSize {
		v := agree.Neutral
		for _, r := range c.Failed() {
			if r >= first && r < first+agree.SetSize {
				v.Add(r - first)
			}
		}
		if v, err = c.e.Recovery.Agree(c.context, v, c.canceller); err != nil {
			return nil, err
		}
		for r := first; r < min(first+agree.SetSize, c.size); r++ {
			if !v.Has(r - first) {
				left = append(left, r)
			}
		}
	}
	if len(left) == 0 {
		return nil, fmt.Errorf("%w: all ranks have failed", ErrProcFailed)
	}
	return left, nil
}

// agreeOnID agrees on the id of the new communicator: the leader proposes ids, and all remaining ranks vote,
// until they accept one. It reports false if the leader has failed.
func (c *Comm) agreeOnID(leader int) (id uint32, ok bool, err error) {
	for {
		proposal, vote := agree.Neutral, agree.Neutral
		if c.rank == leader {
			if id, ok = c.job.ids.Propose(contextid.AnyEndpoint); ok {
				proposal.Max = uint64(id)
			} else {
				proposal.Max = noID
			}
		}
		if proposal, err = c.e.Recovery.Agree(c.context, proposal, c.canceller); err != nil {
			return 0, false, err
		}
		switch id = uint32(proposal.Max); {
		case proposal.Max == 0:
			return 0, false, nil
		case proposal.Max == noID:
			return 0, false, contextid.ErrNoID
		}
		claimed := c.rank == leader || c.job.ids.Accept(id)
		if !claimed {
			vote.And = 0
		}
		if vote, err = c.e.Recovery.Agree(c.context, vote, c.canceller); err != nil {
			return 0, false, err
		}
		if vote.And != 0 {
			return id, true, nil
		}
		if claimed {
			c.job.ids.Refuse(id)
		}
	}
}

// noID is proposed by a leader that has no id left.
const noID = 1 << 32

// turns orders a communicator's agreements, and Shrinks, which make several: a rank begins each one only
// after the one before has returned.
type turns struct{ last chan struct{} }

// turn is the turn of one call.
type turn struct {
	begins <-chan struct{} // closed at the end of the turn before; nil if there is none
	over   chan struct{}   // closed at the end of this one
}

// takeTurn returns the next turn. The caller passes it to inTurn.
func (c *Comm) takeTurn() turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := turn{c.turns.last, make(chan struct{})}
	c.turns.last = t.over
	return t
}

// inTurn makes an agreement in its turn. If the context of the handle ends first, the agreement counts all
// the same, as the other ranks wait for it: in its turn, contribute makes this rank's contribution.
func (c *Comm) inTurn(t turn, agreement func() error, contribute func()) error {
	if t.begins != nil {
		select {
		case <-t.begins:
		case <-c.canceller.Done():
			c.contributeInTurn(t, contribute)
			return c.canceller.Err()
		}
	}
	defer close(t.over)
	return agreement()
}

// contributeInTurn makes a contribution in its turn, for a call that has returned. No other communicator has
// the context meanwhile.
func (c *Comm) contributeInTurn(t turn, contribute func()) {
	task, err := c.e.Requests.BeginTask(c.context) // it fails if the rank has stopped
	c.e.Go(func() {
		<-t.begins
		contribute()
		close(t.over)
		if err == nil {
			c.e.Requests.EndTask(task, nil)
			c.e.Cancels.CancelAndFree(task)
		}
	})
}

// contributeToShrink is the contribution to a Shrink whose context has ended.
func (c *Comm) contributeToShrink() { _, _ = c.agreeOnRanks() }

// beginInTurn is inTurn with a request.
func (c *Comm) beginInTurn(op string, agreement func() error, contribute func()) (Request, error) {
	if err := c.checkAgreement(); err != nil {
		return Request{}, c.failColl(op, err)
	}
	h, err := c.e.Requests.BeginTask(c.context)
	if err != nil {
		return Request{}, c.failColl(op, err)
	}
	t := c.takeTurn()
	c.e.Go(func() { c.e.Requests.EndTask(h, c.failColl(op, c.inTurn(t, agreement, contribute))) })
	return Request{h, c}, nil
}

// Iagree is the non-blocking Agree. *flag is this rank's flag on entry. It belongs to weft until the request
// is complete, and is then the common flag, if there is no error or the error is ErrProcFailed. Blocking and
// non-blocking Agree and Shrink calls on a communicator take effect in the order of the calls, which must be
// the same at all ranks.
func (c *Comm) Iagree(flag *uint64) (Request, error) {
	if flag == nil {
		return Request{}, c.failColl("Iagree", errors.Join(ErrBuffer, errors.New("no flag")))
	}
	mine := *flag
	return c.beginInTurn("Iagree", func() error { return c.agree(flag) }, func() { _ = c.agree(&mine) })
}

// Ishrink is the non-blocking Shrink. *into belongs to weft until the request is complete, and is then the
// new communicator if there is no error.
func (c *Comm) Ishrink(into **Comm) (Request, error) {
	if into == nil {
		return Request{}, c.failColl("Ishrink", errors.Join(ErrBuffer, errors.New("no place for the result")))
	}
	return c.beginInTurn("Ishrink", func() (err error) {
		*into, err = c.shrink()
		return err
	}, c.contributeToShrink)
}
