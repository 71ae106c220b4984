package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// barrier is what is known of the barriers of PMI, in which ranks wait for one another. It finds those that
// wait for a rank that will not come.
type barrier struct {
	s      *Supervisor
	space  *pmi.KeySpace // its members are the agents
	left   []int         // by agent: ranks that are not over
	passed int           // number of completed barriers
	asked  bool          // agents have been asked to report each rank that waits
	known  int           // number of ranks reported since the last barrier was completed
}

func (b *barrier) begin(s *Supervisor) {
	b.s = s
	for _, r := range s.ranks {
		for len(b.left) <= r.Agent {
			b.left = append(b.left, 0)
		}
		b.left[r.Agent]++
	}
	b.space = pmi.NewKeySpace(slices.Clone(b.left), true)
	for agent, ranks := range b.left {
		if ranks == 0 {
			b.space.Leave(agent)
		}
	}
}

// pmiEvent handles an event that a PMI request caused.
func (s *Supervisor) pmiEvent(now time.Time, e agent.Event) {
	switch e := e.(type) {
	case agent.Arrived:
		s.barrier.arrived(now, e)
	case agent.Find:
		step := s.barrier.space.Find(s.ranks[e.Rank].Agent, e.Key)
		for _, a := range step.Answers {
			s.do(agent.Found{Rank: e.Rank, Key: a.Key, Value: a.Value, OK: a.OK})
		}
	case agent.Waits:
		s.barrier.waiting(now, e)
	case agent.Aborts:
		r := &s.ranks[e.Rank]
		s.signed(r)
		r.aborted = true
		f := s.failure(e.Rank, Aborted)
		f.Status = e.Status
		if s.spoken {
			s.do(agent.HangUp{Rank: e.Rank})
		}
		s.fail(now, f, r.sign)
	case agent.LostPeer:
		s.ranks[e.Rank].lostPeer = true
		if e.Peer >= 0 && e.Peer < len(s.ranks) {
			s.suspect(e.Peer, e.Rank)
		}
	case agent.Disturbs:
		r := &s.ranks[e.Rank]
		s.signed(r)
		f := s.failure(e.Rank, Disturbed)
		f.Detail = "broke the PMI protocol: " + e.What
		s.fail(now, f, r.sign)
	}
}

func (b *barrier) arrived(now time.Time, e agent.Arrived) {
	s := b.s
	r := &s.ranks[e.Rank]
	number := r.Agent
	if err := b.space.Put(number, e.Puts); err != nil {
		s.signed(r)
		f := s.failure(e.Rank, Disturbed)
		f.Detail = fmt.Sprintf("and the other ranks of its host have put %v", err)
		s.fail(now, f, r.sign)
		return
	}
	if e.More {
		return
	}
	b.pass(b.space.Arrive(number))
	b.check(now)
}

// waiting notes that a rank waits. Reports about a barrier may arrive after its end.
func (b *barrier) waiting(now time.Time, e agent.Waits) {
	if e.Barrier == b.passed {
		b.s.ranks[e.Rank].waitsIn = e.Barrier + 1
		b.known++
		b.check(now)
	}
}

// pass releases the ranks if all that can have come to the barrier.
func (b *barrier) pass(step pmi.Step) {
	if len(step.Released) > 0 {
		b.passed++
		b.known = 0
		b.s.do(agent.Release{})
	}
}

// gone notes that a rank is over: its process has ended, and its PMI connection.
func (b *barrier) gone(id int) {
	r := &b.s.ranks[id]
	if r.over {
		return
	}
	r.over = true
	if b.left[r.Agent]--; b.left[r.Agent] == 0 && b.s.config.Survive {
		b.pass(b.space.Leave(r.Agent))
	}
}

// waits reports whether a rank is known to wait in the barrier.
func (b *barrier) waits(id int) bool {
	r := &b.s.ranks[id]
	return !r.over && (r.waitsIn == b.passed+1 || b.space.Waits(r.Agent))
}

// missing finds a rank that can no longer come to a barrier: it has ended well, or it has finalized. A rank
// that has ended with another status is a failure of its own, and explains itself.
func (b *barrier) missing() (id int, found bool) {
	for id := range b.s.ranks {
		r := &b.s.ranks[id]
		if r.over && r.status == 0 && !b.s.config.Survive || r.pmi == pmi.Finalized && !r.over {
			return id, true
		}
	}
	return 0, false
}

// ask makes the agents report each rank that waits in a barrier, rather than only when all of theirs do.
func (b *barrier) ask() {
	if !b.asked && b.s.phase == running {
		b.asked = true
		b.s.do(agent.TellWaits{})
	}
}

// check finds ranks that wait for one that will not come.
func (b *barrier) check(now time.Time) {
	s := b.s
	if s.cause != nil {
		return
	}
	missing, found := b.missing()
	if !found {
		return
	}
	b.ask()
	if b.known == 0 && b.space.Waiting() == 0 {
		return
	}
	for id := range s.ranks {
		if !b.waits(id) {
			continue
		}
		f := s.failure(missing, Stranded)
		if s.ranks[missing].pmi == pmi.Finalized {
			f.Detail = fmt.Sprintf("has finalized while rank %d waits for it in a barrier", id)
		} else {
			f.Detail = fmt.Sprintf("exited with status 0 without Init, for which rank %d waits: every rank "+
				"must call it", id)
		}
		r := &s.ranks[missing]
		s.signed(r)
		s.fail(now, f, r.sign)
		return
	}
}
