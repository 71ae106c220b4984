package supervisor

import (
	"fmt"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// agentState is the state of an agent's ranks as a whole.
type agentState struct {
	left int // ranks that are not over
}

// pmiEvent handles an event that a PMI request caused.
func (s *Supervisor) pmiEvent(now time.Time, e agent.Event) {
	switch e := e.(type) {
	case agent.Arrived:
		s.arrived(now, e)
	case agent.Find:
		step := s.space.Find(s.ranks[e.Rank].Agent, e.Key)
		for _, a := range step.Answers {
			s.do(agent.Found{Rank: e.Rank, Key: a.Key, Value: a.Value, OK: a.OK})
		}
	case agent.Waits:
		// Reports about a barrier may arrive after its end.
		if e.Barrier == s.barriers {
			s.ranks[e.Rank].waitsIn = e.Barrier + 1
			s.known++
			s.checkBarrier(now)
		}
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

func (s *Supervisor) arrived(now time.Time, e agent.Arrived) {
	r := &s.ranks[e.Rank]
	number := r.Agent
	if err := s.space.Put(number, e.Puts); err != nil {
		s.signed(r)
		f := s.failure(e.Rank, Disturbed)
		f.Detail = fmt.Sprintf("and the other ranks of its host have put %v", err)
		s.fail(now, f, r.sign)
		return
	}
	if e.More {
		return
	}
	s.pass(s.space.Arrive(number))
	s.checkBarrier(now)
}

// pass releases the ranks if all that can have come to the barrier.
func (s *Supervisor) pass(step pmi.Step) {
	if len(step.Released) > 0 {
		s.barriers++
		s.known = 0
		s.do(agent.Release{})
	}
}

// gone notes that a rank is over: its process has ended, and its PMI connection.
func (s *Supervisor) gone(id int) {
	r := &s.ranks[id]
	if r.over {
		return
	}
	r.over = true
	a := &s.agents[r.Agent]
	if a.left--; a.left == 0 && s.config.Survive {
		s.pass(s.space.Leave(r.Agent))
	}
}

// waits reports whether a rank is known to wait in the barrier.
func (s *Supervisor) waits(id int) bool {
	r := &s.ranks[id]
	return !r.over && (r.waitsIn == s.barriers+1 || s.space.Waits(r.Agent))
}

// missing finds a rank that can no longer come to a barrier: its process has ended, or it has finalized.
func (s *Supervisor) missing() (id int, found bool) {
	for id := range s.ranks {
		r := &s.ranks[id]
		if r.over && !s.config.Survive || r.pmi == pmi.Finalized && !r.over {
			return id, true
		}
	}
	return 0, false
}

// askWaits makes the agents report each rank that waits in a barrier, rather than only when all of theirs do.
func (s *Supervisor) askWaits() {
	if !s.askedWaits && s.phase == running {
		s.askedWaits = true
		s.do(agent.TellWaits{})
	}
}

// checkBarrier finds ranks that wait for one that will not come.
func (s *Supervisor) checkBarrier(now time.Time) {
	if s.cause != nil {
		return
	}
	missing, found := s.missing()
	if !found {
		return
	}
	s.askWaits()
	if s.known == 0 && s.space.Waiting() == 0 {
		return
	}
	for id := range s.ranks {
		if !s.waits(id) {
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
