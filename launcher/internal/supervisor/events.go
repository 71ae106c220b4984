package supervisor

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// Event handles an event of an agent. It ignores events that do not concern a rank's life. AllStarted stands
// for all agents: each has reported it, or is lost.
func (s *Supervisor) Event(now time.Time, e agent.Event) {
	switch e := e.(type) {
	case agent.Started:
		r := &s.ranks[e.Rank]
		r.pid, r.state = e.PID, alive
	case agent.NotStarted:
		if s.notStarted == nil {
			s.notStarted = &e
			s.end(now)
		}
	case agent.AllStarted:
		s.allStarted = true
	case agent.Arrived, agent.Find, agent.Waits, agent.Aborts, agent.LostPeer, agent.Disturbs:
		s.pmiEvent(now, e)
	case agent.PMIClosed:
		s.pmiClosed(now, e)
	case agent.Exited:
		s.exited(now, e)
	case agent.OutputEnd:
		s.ranks[e.Rank].outputOver = true
	case agent.Stopped:
		s.stopped(now, e)
	case agent.Continued:
		r := &s.ranks[e.Rank]
		r.stopped, r.suspended = 0, false
	case agent.Lost:
		s.lost(now, e)
	}
	s.letSpeak(now)
	s.checkOver(now)
}

// signed numbers the rank's first sign of failure.
func (s *Supervisor) signed(r *rank) {
	if r.sign == 0 {
		r.sign = s.nextSign()
	}
}

// inJob reports whether a rank is between Init and Finalize, as its agent last reported.
func (s *Supervisor) inJob(id int) bool {
	state := s.ranks[id].pmi
	return state == pmi.Initialized || state == pmi.InBarrier
}

func (s *Supervisor) pmiClosed(now time.Time, e agent.PMIClosed) {
	id := e.Rank
	r := &s.ranks[id]
	r.pmi = e.State
	if s.inJob(id) {
		s.signed(r)
	}
	switch r.state {
	case alive:
		r.state = disconnected
		if s.inJob(id) {
			s.timers.add(now.Add(lingerAfter), lingering, id)
		}
		s.barrier.check(now)
	case exited:
		r.state = ended
		s.evaluate(now, id)
	}
}

func (s *Supervisor) exited(now time.Time, e agent.Exited) {
	r := &s.ranks[e.Rank]
	r.status, r.stopped, r.pmi = e.Status, 0, e.State
	if e.Status != 0 || s.inJob(e.Rank) {
		s.signed(r)
	}
	if r.state == alive {
		r.state = exited
		s.timers.add(now.Add(overdueAfter), pmiOverdue, e.Rank)
		return
	}
	r.state = ended
	s.evaluate(now, e.Rank)
}

// evaluate handles a rank whose process and PMI connection have both ended: only then is it known how far it
// had come.
func (s *Supervisor) evaluate(now time.Time, id int) {
	r := &s.ranks[id]
	inJob := s.inJob(id)
	s.barrier.gone(id)
	switch {
	case r.status.Signaled():
		f := s.failure(id, Killed)
		if f.Signal = r.status.Signal(); s.forwarded[f.Signal] {
			f.How = Interrupted
		}
		s.fail(now, f, r.sign)
	case r.status.ExitStatus() != 0 && s.forwarded[syscall.SIGQUIT]:
		// It has printed its stacks, as requested.
		f := s.failure(id, Interrupted)
		f.Signal = syscall.SIGQUIT
		s.fail(now, f, r.sign)
	case r.status.ExitStatus() != 0:
		f := s.failure(id, Exited)
		f.Status = r.status.ExitStatus()
		s.fail(now, f, r.sign)
	case inJob:
		s.fail(now, s.failure(id, Unfinished), r.sign)
	}
	s.barrier.check(now)
}

func (s *Supervisor) stopped(now time.Time, e agent.Stopped) {
	r := &s.ranks[e.Rank]
	if r.suspended || s.phase != running || r.state != alive && r.state != disconnected {
		return // an agent may report it after the end
	}
	r.stopped, r.stopSign = e.Signal, s.nextSign()
	there := ""
	if s.config.Ranks[e.Rank].Agent > 0 {
		there = " there"
	}
	s.notice("%s is stopped (%s): the job waits for it; kill -CONT %d%s continues it",
		s.who(e.Rank), sys.SignalName(e.Signal), r.pid, there)
	r.stoppedAt = now
	s.barrier.ask()
	s.timers.add(now.Add(stopTimeout), stoppedLong, e.Rank)
}

// checkStopped ends the job for a rank that is stopped while others wait for it in a barrier.
func (s *Supervisor) checkStopped(now time.Time, id int) {
	r := &s.ranks[id]
	if r.stopped == 0 || r.suspended || s.phase != running || now.Sub(r.stoppedAt) < stopTimeout {
		return // and if it has been stopped again there is another timer
	}
	if r.pmi != pmi.Finalized && !s.barrier.waits(id) {
		for other := range s.ranks {
			if s.ranks[other].stopped == 0 && s.barrier.waits(other) {
				f := s.failure(id, Stopped)
				f.Signal, f.Detail = r.stopped, fmt.Sprintf("and rank %d waits for it in a barrier", other)
				s.fail(now, f, r.stopSign)
				return
			}
		}
	}
	s.timers.add(now.Add(time.Second), stoppedLong, id)
}

// Left returns those of the ranks that are not over yet.
func (s *Supervisor) Left(ranks []int) (left []int) {
	for _, id := range ranks {
		if r := &s.ranks[id]; r.state != ended || !r.outputOver {
			left = append(left, id)
		}
	}
	return left
}

// lost treats an agent's ranks as ended. Those of which everything is known are not lost with it, and if that
// is all of them, nothing is.
func (s *Supervisor) lost(now time.Time, e agent.Lost) {
	left := s.Left(e.Ranks)
	for _, id := range left {
		r := &s.ranks[id]
		r.state, r.outputOver = ended, true
		s.barrier.gone(id)
		if s.config.Survive && s.phase == running {
			f := s.failure(id, HostLost)
			f.Detail = "is lost with its host: " + strings.TrimPrefix(e.Reason, "host "+f.Host+" is lost: ")
			s.fail(now, f, s.nextSign())
		}
	}
	if s.config.Survive && s.phase == running || len(left) == 0 && len(e.Ranks) > 0 {
		return
	}
	reason := e.Reason
	if len(left) > 0 && !e.OfAll {
		reason += fmt.Sprintf(" (rank%s %s)", plural.S(len(left)), topology.FormatCPUList(left))
	}
	s.failAll(now, &Failure{How: AgentLost, Rank: -1, Detail: reason})
}
