package launcher

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// loop runs the job from its start to its end: it passes events to the supervisor, and carries out the
// supervisor's decisions. It never waits for a rank, nor for the reader of the job's output, except at the
// end for a bounded time until output is written. It reports whether the job must be started again.
func (j *job) loop(ctx context.Context, signals <-chan os.Signal) (again bool, err error) {
	s := j.newSupervisor()
	defer func() {
		j.tellWireUp()
		j.tellStep("the job is over")
	}()
	j.live.begin(j, s)
	j.hang = hangWatch{job: j, supervisor: s, detector: deadlock.NewDetector(len(j.programs.of), j.Stuck)}
	j.records = newRecords(j, s)
	j.artifacts.job, j.artifacts.supervisor = j, s
	j.artifacts.expectTimeout(j.past.began)
	j.observers = []observer{&j.live, &j.hang, &j.records, &j.artifacts}
	j.nodes.merge(j.events, j.over)
	j.start()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var parts chan []byte
	if j.input != nil {
		parts = j.input.parts
	}
	cancelled := ctx.Done()
	for {
		j.carryOut(s.Ready())
		for _, o := range j.observers {
			o.tick(time.Now())
		}
		j.carryOut(s.Ready()) // what an observer has caused
		if s.Over() && !j.records.due(time.Now()) {
			if j.past.startsAgain(s) {
				return true, nil
			}
			lost := j.artifacts.tell()
			if err := result(s); err != nil || lost == nil {
				return false, err
			}
			return false, lost
		}
		timer.Reset(time.Until(j.wakeAt(s)))
		select {
		case e := <-j.events:
			j.event(s, time.Now(), e)
		case sig := <-signals:
			if sig == syscall.SIGQUIT {
				j.hang.quit(time.Now())
			} else {
				s.Signal(time.Now(), sig.(syscall.Signal))
			}
		case part := <-parts:
			j.nodes.do(j.input.hand(part)...)
		case <-cancelled:
			cancelled = nil
			s.Cancel(time.Now(), context.Cause(ctx))
		case err := <-j.records.written:
			j.records.wrote(err)
		case <-j.output.Changed():
		case <-j.live.server.Changed():
		case <-timer.C:
		}
		now := time.Now()
		s.Tick(now)
		if s.Cause() != nil {
			j.output.HoldStderr()
		}
		j.output.Tick(now, s.RanksOver())
		j.nodes.do(j.output.Flow()...)
		if stream, err := j.output.Failure(); err != nil {
			s.OutputFailed(now, stream, err)
		}
		s.Unwritten(now, j.output.Unwritten())
	}
}

// wakeAt returns when something is due without an event.
func (j *job) wakeAt(s *supervisor.Supervisor) time.Time {
	at := time.Now().Add(time.Hour)
	dues := []time.Time{s.Next(), j.output.Due()}
	for _, o := range j.observers {
		dues = append(dues, o.next())
	}
	for _, due := range dues {
		if !due.IsZero() && due.Before(at) {
			at = due
		}
	}
	return at
}

// event distributes an event of an agent.
func (j *job) event(s *supervisor.Supervisor, now time.Time, e agent.Event) {
	lastToStart := false // the lost agent was the only one that was still starting ranks
	switch e := e.(type) {
	case agent.Output:
		j.output.Add(now, e)
		return
	case agent.InputTaken:
		j.input.taken(e)
		return
	case agent.OutputEnd:
		j.output.End(e.Rank)
	case agent.Started:
		j.tellStart(e)
	case agent.AllStarted:
		if !j.nodeStarted(s) {
			return
		}
	case agent.Lost:
		if len(e.Ranks) > 0 {
			j.past.lostHost(now, j.nodes.of[e.Ranks[0]].name, e, s.Left(e.Ranks))
		}
		for _, rank := range e.Ranks {
			j.output.End(rank)
			j.endInput(rank)
		}
		lastToStart = e.Starting && j.nodeStarted(s)
	case agent.Exited:
		j.endInput(e.Rank)
	}
	for _, o := range j.observers {
		o.event(now, e)
	}
	s.Event(now, e)
	if lastToStart {
		s.Event(now, agent.AllStarted{})
	}
}

// endInput notes that a rank takes no more input: the others' does not wait for it.
func (j *job) endInput(rank int) {
	if j.input != nil {
		j.input.remove(rank)
	}
}

// nodeStarted notes that no further rank of a node will be started, and reports whether that is so of all
// nodes.
func (j *job) nodeStarted(s *supervisor.Supervisor) bool {
	if j.notYet--; j.notYet > 0 {
		return false
	}
	j.tellStep("all ranks are started")
	if j.input != nil && s.NotStarted() == nil {
		j.input.start()
	}
	return true
}

func (j *job) tellStart(e agent.Started) {
	if j.Verbose {
		program := j.programs.of[e.Rank]
		command := strings.Join(append([]string{j.programs.files[program]}, j.Apps[program].Args...), " ")
		j.tellStep("rank %d has pid %d: %s", e.Rank, e.PID, command)
	}
	if j.ReportBindings {
		n, i := j.nodes.of[e.Rank], j.nodes.local[e.Rank]
		j.output.Notice("rank %d: pid %d on %s, %s, %s", e.Rank, e.PID, n.name, n.plan.boundTo(i),
			n.plan.handledOn(i))
	}
}

// carryOut carries out what the supervisor has decided.
func (j *job) carryOut(ready supervisor.Ready) {
	for _, text := range ready.Notices {
		j.output.Notice("%s", text)
	}
	for _, c := range ready.Commands {
		if _, is := c.(agent.Release); is {
			j.tellStep("all ranks are in a barrier of PMI")
		}
	}
	j.nodes.do(ready.Commands...)
	if ready.Suspend {
		suspend()
	}
	if ready.DropOutput {
		j.output.Drop()
	}
}

// result returns the result of Run.
func result(s *supervisor.Supervisor) error {
	if n := s.NotStarted(); n != nil {
		if n.Status != 0 {
			return &ProgramError{Status: n.Status, What: n.Reason}
		}
		return errors.New(n.Reason)
	}
	if cause := s.Cause(); cause != nil {
		return cause
	}
	return nil
}
