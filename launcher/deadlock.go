package launcher

import (
	"cmp"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// quitTwice is the time within which a second SIGQUIT is passed on to the ranks.
const quitTwice = 2 * time.Second

// A hangWatch detects that the ranks wait for events that will never happen, and reports it.
type hangWatch struct {
	job        *job
	supervisor *supervisor.Supervisor
	detector   *deadlock.Detector
	quitAt     time.Time // the last SIGQUIT that was not passed on
}

func (h *hangWatch) next() time.Time { return h.detector.Next() }

// event passes relevant events to the detector.
func (h *hangWatch) event(now time.Time, e agent.Event) {
	switch e := e.(type) {
	case agent.Quiet:
		if h.job.Stuck > 0 {
			h.detector.Quiet(now, e.Rank)
		}
	case agent.Moving:
		h.detector.Moving(e.Rank)
	case agent.Answer:
		// A rank with an invalid answer counts as one that does not answer.
		if s, err := snapshot.Decode(e.Snapshot); err == nil {
			h.detector.Answer(now, e.Rank, s)
		}
	case agent.Exited:
		h.detector.Ended(now, e.Rank)
	case agent.Lost:
		for _, id := range e.Ranks {
			h.detector.Ended(now, id)
		}
	}
}

// tick asks the ranks what the detector needs, and reports what it has found.
func (h *hangWatch) tick(now time.Time) {
	j, s := h.job, h.supervisor
	h.detector.Tick(now)
	ask, reports := h.detector.Ready()
	if len(ask) > 0 {
		j.nodes.do(agent.Ask{Ranks: ask, Question: snapshot.Ask})
	}
	for _, r := range reports {
		if r.Requested && r.Answers == 0 {
			// No rank uses weft: the user's SIGQUIT is for the programs.
			s.Signal(now, syscall.SIGQUIT)
			continue
		}
		j.output.Notice("%s", r.Title)
		for _, line := range r.Lines {
			j.output.Notice("%s", line)
		}
		action := cmp.Or(j.StuckAction, OnlyReport)
		if why := action.Why(&r); why != "" {
			s.Deadlock(now, why)
		} else if advice := action.Advice(&r, "--stuck-action "); advice != "" {
			j.output.Notice("%s", advice)
		}
	}
}

// quit handles SIGQUIT: the first one asks what the ranks do, and a second one soon after is passed on to
// them.
func (h *hangWatch) quit(now time.Time) {
	if now.Sub(h.quitAt) < quitTwice {
		h.supervisor.Signal(now, syscall.SIGQUIT)
		return
	}
	h.quitAt = now
	h.detector.Explain(now)
	h.job.records.record(now, true)
}
