package engine

import (
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// cqSet is the set of completion queues, of all fabrics and endpoints of a rank, in which a goroutine sleeps.
// Several queues share one epoll descriptor that contains theirs, so a sleep needs no further goroutine.
//
// One goroutine at a time sleeps in it: the progress owner.
type cqSet struct {
	mu     orderedMutex // guards queues and poller
	queues []transport.CQ
	poller *sys.Poller // contains the descriptor of each queue; nil if there is one queue that needs none

	// the sleep blocks no thread: ranks share cores
	parks bool

	first transport.CQ // queues[0]; may be read without mu
}

// add adds a queue of a fabric's device. The next sleep waits for it too.
func (s *cqSet) add(name string, d transport.Device, q transport.CQ) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queues) == 0 {
		s.queues, s.first = append(s.queues, q), q
		s.parks = s.parks && d.Query().PollableCQs && q.Descriptor() >= 0
		if s.parks {
			return s.watchFirst()
		}
		return nil
	}
	if !d.Query().PollableCQs || s.queues[0].Descriptor() < 0 {
		return fmt.Errorf("%w: fabric %s cannot be waited for together with others; use it alone, with one "+
			"endpoint", transport.ErrInvalid, name)
	}
	if s.poller == nil {
		if err := s.watchFirst(); err != nil {
			return err
		}
	}
	if err := s.poller.Add(q.Descriptor(), int32(len(s.queues)), false); err != nil {
		return fmt.Errorf("waiting for fabric %s among others: %w", name, err)
	}
	s.queues = append(s.queues, q)
	return nil
}

// remove removes a queue that was added. A sleep under way may still wait for it.
func (s *cqSet) remove(q transport.CQ) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = slices.DeleteFunc(slices.Clone(s.queues), func(other transport.CQ) bool { return other == q })
	if s.poller == nil {
		return nil
	}
	return s.poller.Remove(q.Descriptor())
}

// watchFirst makes the poller, with the first queue.
func (s *cqSet) watchFirst() error {
	p, err := sys.NewPoller()
	if err == nil {
		if err = p.Add(s.queues[0].Descriptor(), 0, false); err != nil {
			p.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("waiting for several queues: %w", err)
	}
	s.poller = p
	return nil
}

// sleep blocks until a Poll of some queue may find something, or wake is called. The queues are armed, and no
// engine's lock is held.
func (s *cqSet) sleep() error {
	s.mu.Lock()
	queues, poller := s.queues, s.poller
	s.mu.Unlock()
	if poller == nil {
		return queues[0].Wait(-1)
	}
	for i, q := range queues {
		entered, err := q.EnterWait()
		if !entered {
			s.leave(queues[:i])
			return err
		}
	}
	defer s.leave(queues)
	if s.parks {
		return poller.Park()
	}
	return poller.Wait(-1)
}

func (s *cqSet) leave(entered []transport.CQ) {
	for _, q := range entered {
		q.LeaveWait()
	}
}

// wake ends the current sleep, or else the next one.
func (s *cqSet) wake() { s.first.Wake() }

// close releases the set, but not the queues, which belong to their devices.
func (s *cqSet) close() {
	if s.poller != nil {
		s.poller.Close()
	}
}
