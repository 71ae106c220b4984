package engine

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// cqSet is the completion queues of all fabrics of a rank, as what a goroutine sleeps in. Several queues are
// waited for by one epoll descriptor that contains theirs, so that a sleep needs no further goroutine.
//
// One goroutine at a time sleeps in it: the progress owner.
type cqSet struct {
	queues []transport.CQ
	poller *sys.Poller // contains the descriptor of each queue; nil for one queue, which is waited for itself
}

// init takes the queues of a rank, at least one.
func (s *cqSet) init(fabrics []*fabric) error {
	for _, f := range fabrics {
		s.queues = append(s.queues, f.cq)
	}
	if len(fabrics) == 1 {
		return nil
	}
	p, err := sys.NewPoller()
	if err != nil {
		return fmt.Errorf("waiting for several fabrics: %w", err)
	}
	s.poller = p
	for i, f := range fabrics {
		if !f.device.Query().PollableCQs {
			return fmt.Errorf("%w: fabric %s cannot be waited for together with others; use it alone",
				transport.ErrInvalid, f.name)
		}
		if err := p.Add(f.cq.Descriptor(), int32(i), false); err != nil {
			return fmt.Errorf("waiting for fabric %s among others: %w", f.name, err)
		}
	}
	return nil
}

// armLocked has each queue end the next sleep when traffic comes.
func (s *cqSet) armLocked() {
	for _, q := range s.queues {
		q.Arm()
	}
}

// sleep blocks until a Poll of some queue may find something to do, or wake is called. The queues are armed,
// and the engine's lock is not held.
func (s *cqSet) sleep() error {
	if s.poller == nil {
		return s.queues[0].Wait(-1)
	}
	for i, q := range s.queues {
		entered, err := q.EnterWait()
		if !entered {
			s.leave(s.queues[:i])
			return err
		}
	}
	err := s.poller.Wait(-1)
	s.leave(s.queues)
	return err
}

func (s *cqSet) leave(entered []transport.CQ) {
	for _, q := range entered {
		q.LeaveWait()
	}
}

// wake ends a sleep, the present or else the next.
func (s *cqSet) wake() { s.queues[0].Wake() }

// requestNotify has each queue raise an event for the completion handler.
func (s *cqSet) requestNotify() error {
	var errs error
	for _, q := range s.queues {
		errs = errors.Join(errs, q.RequestNotify(notifyAll))
	}
	return errs
}

// close releases the set, and leaves the queues to their devices.
func (s *cqSet) close() {
	if s.poller != nil {
		s.poller.Close()
	}
}
