package launcher

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

const (
	// liveEvery is the interval at which ranks are asked while somebody watches; it is longer for a job of
	// many ranks.
	liveEvery         = time.Second
	liveEveryThousand = time.Second
	// liveAnswer is how long to wait for the slowest rank.
	liveAnswer = 500 * time.Millisecond
)

// liveView is the launcher's view of the ranks for those that watch the job. Without watchers it asks
// nothing.
type liveView struct {
	job        *job
	supervisor *supervisor.Supervisor
	server     *live.Server // nil where no socket could be made
	every      time.Duration
	ranks      []liveRank

	asking   bool
	deadline time.Time // of the answers, while asking
	again    time.Time // when to ask next; zero while nobody watches
}

// liveRank is what a rank has reported of itself.
type liveRank struct {
	asked  bool // and has not answered; such a rank is not asked again
	sample *snapshot.Sample
}

// begin begins to serve watchers. If that fails, the job runs without.
func (v *liveView) begin(j *job, s *supervisor.Supervisor) {
	n := len(j.programs.of)
	v.job, v.supervisor, v.ranks = j, s, make([]liveRank, n)
	v.every = liveEvery + time.Duration(n/1000)*liveEveryThousand
	server, err := live.Listen(live.Job{PID: os.Getpid(), Name: filepath.Base(j.Apps[0].name()), Size: n,
		Every: v.every}, j.local.RemoveSocket)
	if err != nil {
		j.tellStep("weft top cannot watch this job: %v", err)
		return
	}
	v.server = server
}

// event handles an answer of a rank.
func (v *liveView) event(_ time.Time, e agent.Event) {
	if e, is := e.(agent.Sampled); is {
		v.sampled(e)
	}
}

// sampled stores a rank's sample. An invalid one, or one of another rank, is ignored.
func (v *liveView) sampled(e agent.Sampled) {
	s, err := snapshot.DecodeSample(e.Sample)
	if err == nil && s.State.IsOf(e.Rank, len(v.ranks)) {
		v.ranks[e.Rank].sample, v.ranks[e.Rank].asked = s, false
	}
}

// next is when tick is due; zero if it is not.
func (v *liveView) next() time.Time {
	if v.asking {
		return v.deadline
	}
	return v.again
}

// tick asks the ranks, and informs the watchers, when it is due.
func (v *liveView) tick(now time.Time) {
	if v.server.Watchers() == 0 {
		v.asking, v.again = false, time.Time{}
		return
	}
	if v.asking && (!now.Before(v.deadline) || !v.waits()) {
		v.asking = false
		v.server.Publish(v.jobAt(now))
	}
	if v.asking || now.Before(v.again) {
		return
	}
	v.asking, v.deadline, v.again = true, now.Add(liveAnswer), now.Add(v.every)
	ask := agent.Ask{Question: snapshot.AskSample}
	for id := range v.ranks {
		if r := &v.ranks[id]; v.supervisor.Process(id).Running() && !r.asked {
			r.asked = true
			ask.Ranks = append(ask.Ranks, id)
		}
	}
	v.job.nodes.do(ask)
}

// waits reports whether the answer of a rank is missing.
func (v *liveView) waits() bool {
	for id, r := range v.ranks {
		if p := v.supervisor.Process(id); r.asked && !p.Ended && !p.Stopped {
			return true
		}
	}
	return false
}

// jobAt returns the job's state for the watchers.
func (v *liveView) jobAt(now time.Time) *live.Job {
	j := v.job
	job := &live.Job{PID: os.Getpid(), Name: filepath.Base(j.Apps[0].name()), Size: len(j.programs.of),
		Up: now.Sub(j.began), Every: v.every, Stuck: j.hang.detector.Stuck()}
	for id := range v.ranks {
		r := v.describe(id)
		r.Rank, r.Host = id, j.nodes.of[id].name
		if _, stuck := slices.BinarySearch(job.Stuck, id); stuck && r.Call != "" {
			r.State = live.Stuck
		}
		job.Ranks = append(job.Ranks, r)
	}
	return job
}

// describe describes what a rank does.
func (v *liveView) describe(id int) live.Rank {
	p, s := v.supervisor.Process(id), v.ranks[id].sample
	r := live.Rank{PID: p.PID, State: v.ranks[id].state(p)}
	if s == nil {
		return r
	}
	r.Up, r.Asleep, r.Memory, r.Registered = s.Up, s.Asleep, s.Memory, s.Registered
	r.Sent, r.SentBytes, r.SentBy = s.Sent, s.SentBytes, s.SentBy
	r.Phases, r.Lanes, r.LanesLost = s.Phases, s.Lanes, s.LanesLost
	switch {
	case r.State == live.Ended || r.State == live.Finished:
	case len(s.State.Waits) > 0:
		longest := slices.MaxFunc(s.State.Waits, func(a, b snapshot.Wait) int {
			return cmp.Compare(a.Since, b.Since)
		})
		r.Call, r.For = deadlock.Describe(&s.State, &longest), longest.Since
	case s.State.At != "":
		r.Call = deadlock.Doing(&s.State)
	}
	return r
}

func (l *liveRank) state(p supervisor.Process) live.State {
	switch {
	case p.Ended:
		return live.Ended
	case p.PID == 0:
		return live.Starting
	case p.Stopped:
		return live.Stopped
	case l.asked || l.sample == nil:
		return live.Silent
	}
	switch s := &l.sample.State; {
	case s.Phase == snapshot.Starting:
		return live.Starting
	case s.Phase == snapshot.Finalizing:
		return live.Finalizing
	case s.Phase == snapshot.Finished:
		return live.Finished
	case len(s.Waits) > 0 && s.Active == 0:
		return live.Waiting
	}
	return live.Working
}
