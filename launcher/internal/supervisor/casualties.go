package supervisor

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// survives reports whether the job continues after a failure: a rank's own failure, in a job that survives
// those, that nobody requested.
func (s *Supervisor) survives(f *Failure) bool {
	if !s.config.Survive || s.phase != running || s.cause != nil || f.Rank < 0 {
		return false
	}
	switch f.How {
	case Exited, Killed, Unfinished, Silent, Disturbed, HostLost:
		return true
	}
	return false
}

// lose continues the job without a rank, and informs the others.
func (s *Supervisor) lose(f *Failure) {
	r := &s.ranks[f.Rank]
	if r.lost {
		return
	}
	r.lost = true
	s.casualties = append(s.casualties, f)
	if len(s.casualties) < len(s.ranks) {
		s.notice("%s: the job goes on without it", f)
	} else {
		s.notice("%s", f) // countCasualties says that no rank is left
	}
	if r.state == alive || r.state == disconnected {
		s.do(agent.Signal{Ranks: []int{f.Rank}, Signal: syscall.SIGKILL})
	}
	s.do(agent.Failed{Rank: f.Rank})
}

// suspect kills a rank that another rank has lost although it is alive, stopped or cut off: otherwise the
// ranks would not agree on which ranks have failed. Two ranks may have lost each other, as when one has
// broken a rule and the other has closed the connection. The one whose loss is reported first is killed,
// because a report of a rank that is being killed does not count. Ranks agree to continue without a rank that
// they have lost when they receive Failed.
func (s *Supervisor) suspect(id, by int) {
	r := &s.ranks[id]
	if !s.config.Survive || s.phase != running || r.lost || r.state != alive || r.suspected ||
		s.ranks[by].lost || s.ranks[by].suspected {
		return
	}
	r.suspected = true
	s.notice("rank %d has lost %s, which has to end", by, s.who(id))
	s.do(agent.Signal{Ranks: []int{id}, Signal: syscall.SIGKILL})
}

// countCasualties reports at the end of a job which ranks it has lost. If no rank is left, the first failure
// is the job's.
func (s *Supervisor) countCasualties() {
	if len(s.casualties) == 0 || s.cause != nil || s.root.best != nil || s.notStarted != nil {
		return
	}
	if len(s.casualties) == len(s.ranks) {
		s.cause = s.casualties[0]
		s.notice("no rank is left; the first failure: %s", s.cause)
		return
	}
	var ids []int
	for _, f := range s.casualties {
		ids = append(ids, f.Rank)
	}
	slices.Sort(ids)
	s.cause = &Failure{How: RanksLost, Rank: -1, Detail: fmt.Sprintf(
		"the job went on to its end without %d of its %d ranks: %s", len(ids), len(s.ranks),
		topology.FormatCPUList(ids))}
	s.notice("%s", s.cause)
}
