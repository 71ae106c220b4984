package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/launcher/internal/agent"
	"github.com/weft-mpi/weft/launcher/internal/output"
	"github.com/weft-mpi/weft/launcher/internal/remote"
	"github.com/weft-mpi/weft/launcher/internal/supervisor"
)

// startPause is the pause after a failed restart before the next one.
const startPause = 2 * time.Second

// reconnectTimeout is how long the agent of a host may take to come up when the job starts again. A host that
// takes longer is left out. After aroundTimeout the others are no longer reached through it. Tests change
// both.
var reconnectTimeout, aroundTimeout = 10 * time.Second, 5 * time.Second

// A history is the state that all attempts of a job share. An attempt is one run of all ranks: the job has
// one, and another for each restart. Each has its own id, secret and agents, so that nothing of an earlier
// one can disturb it.
type history struct {
	restarts     int       // how often the job has been started again
	began        time.Time // when the ranks were first started: the timeout counts from then; zero before
	ranks, slots int       // of the first attempt
	files        []string  // of the programs, as the latest attempt has found them
	lost         []string  // the hosts whose loss has ended an attempt
	notes        []string  // what the user has been told of unknown settings and of how the ranks are placed
	// freeAt is when nothing is left any more of an earlier attempt on a host that is cut off.
	freeAt time.Time
}

// past is the present attempt's view of the earlier ones. It decides whether there is another attempt, and
// what that shares with the first.
type past struct {
	*history
	spec     *Job
	output   *output.Output
	hostLost bool // an agent of this attempt is gone, and ranks with it
}

// runOnce runs the job once, and returns when it is over and nothing of it is left. again says whether the
// job must be started again.
func runOnce(ctx context.Context, spec Job, earlier *history, signals <-chan os.Signal) (again bool,
	err error) {
	j, err := newJob(spec, earlier)
	if err != nil {
		return false, err
	}
	defer j.close()
	if err := j.prepareOrSignal(ctx, signals); err != nil {
		return j.past.retryPreparing(ctx, err), err
	}
	if j.DryRun {
		return false, j.showPlan()
	}
	return j.loop(ctx, signals)
}

// retryPreparing reports whether another restart follows one that could not be prepared. None follows if the
// caller of Run, who ends ctx, or the user has ended the job.
func (p *past) retryPreparing(ctx context.Context, err error) bool {
	var request *RequestError
	var end *Failure
	if p.restarts == 0 || ctx.Err() != nil || errors.As(err, &request) || errors.As(err, &end) ||
		!p.restartsLeft() {
		return false
	}
	p.output.Problem(err)
	p.freeAt = time.Now().Add(startPause)
	p.countRestart()
	return true
}

// startsAgain reports whether the job, which is over, is started again, and tells the user.
func (p *past) startsAgain(s *supervisor.Supervisor) bool {
	if p.spec.Restarts == 0 || !s.Restartable() || !p.restartsLeft() {
		return false
	}
	p.countRestart()
	return true
}

// restartsLeft reports whether the job may be started again. If not, it tells the user.
func (p *past) restartsLeft() bool {
	if p.restarts < p.spec.Restarts {
		return true
	}
	p.output.Notice("the job has been started again %s, as often as --restarts allows",
		plural.Count(p.restarts, "time"))
	return false
}

func (p *past) countRestart() {
	p.restarts++
	p.output.Notice("the job starts again: restart %d of %d", p.restarts, p.spec.Restarts)
}

// lostHost notes that the agent of a host is lost, and with it left, those of its ranks that were not over.
// Once ranks are lost it records no further host of the attempt: that loss ends the attempt, and others may
// follow from it. It records none if the agents of all hosts are lost together. A silent agent may only be
// cut off: its ranks run until it has heard nothing from the launcher for a while, and freeAt is after that.
func (p *past) lostHost(now time.Time, name string, e agent.Lost, left []int) {
	if !p.hostLost && !e.OfAll && !slices.Contains(p.lost, name) {
		p.lost = append(p.lost, name)
	}
	p.hostLost = p.hostLost || len(left) > 0
	if e.Silent {
		p.freeAt = now.Add(remote.EndsWithin)
	}
}

// waitUntilFree waits until nothing of the earlier attempts can be running anywhere.
func (p *past) waitUntilFree(ctx context.Context) error {
	wait := time.Until(p.freeAt)
	if wait <= 0 {
		return nil
	}
	if wait > startPause {
		p.output.Notice("waiting %v, until the ranks of a host that may be cut off have ended",
			wait.Round(100*time.Millisecond))
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// withTimeout returns ctx; for a restart it ends at the timeout of the whole job.
func (p *past) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.spec.Timeout == 0 || p.began.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, p.began.Add(p.spec.Timeout), &Failure{How: TimedOut, Rank: -1,
		Detail: fmt.Sprintf("the job was not over after %s (--timeout): it was being started again",
			p.spec.Timeout)})
}

// hostsToAsk returns the hosts on which to start agents. A single command for all of them would fail for a
// lost host; with a command for each, a host that is back is used again.
func (p *past) hostsToAsk() []Host {
	hosts := slices.Clone(p.spec.Hosts)
	if !p.spec.startsAll() {
		return hosts
	}
	left := slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool {
		return slices.Contains(p.lost, h.Name)
	})
	if len(left) == 0 {
		return hosts
	}
	return left
}

// leaveOut removes hosts without an agent from a job that is started again. It fails if none is left.
func (p *past) leaveOut(hosts []Host, nodes []*node) ([]Host, []*node, error) {
	var left []Host
	var there []*node
	for i, n := range nodes {
		if n != nil {
			left, there = append(left, hosts[i]), append(there, n)
		} else {
			p.output.Notice("host %s is left out", hosts[i].Name)
		}
	}
	if left == nil {
		return nil, nil, errors.New("the job cannot be started again: no host is left")
	}
	return left, there, nil
}

// size returns the number of ranks on the present hosts: as at first, or if there are too few slots, as many
// as slots, but at least Min. It records the numbers of the first attempt.
func (p *past) size(hosts []Host, ranks int) (int, error) {
	slots := sumSlots(hosts)
	if p.restarts == 0 {
		if ranks == 0 {
			ranks = slots
		}
		if ranks > maxRanks {
			return 0, requestErrorf("more than %d ranks", maxRanks)
		}
		p.ranks, p.slots = ranks, slots
		return ranks, p.spec.checkMin(ranks)
	}
	if p.spec.Min == 0 || slots >= p.slots {
		return p.ranks, nil
	}
	n := min(max(slots, p.spec.Min), p.ranks)
	if n < p.ranks {
		verb := "are"
		if slots == 1 {
			verb = "is"
		}
		p.output.Notice("%s in place of %d, for there %s %s", plural.Count(n, "rank"), p.ranks, verb,
			plural.Count(slots, "slot"))
	}
	return n, nil
}

// checkMin checks the minimum number of ranks of a job of n.
func (j *Job) checkMin(n int) error {
	if j.Min > n {
		return requestErrorf("at least %d ranks after a restart: the job has %d", j.Min, n)
	}
	return nil
}

// checkRestarts checks the options for restarts of a job of n ranks.
func (j *Job) checkRestarts(ranks int) error {
	switch {
	case j.Restarts < 0:
		return requestErrorf("%d restarts: the number is below zero", j.Restarts)
	case j.Min < 0:
		return requestErrorf("at least %d ranks after a restart: the number is below zero", j.Min)
	case j.Restarts == 0 && j.Min > 0:
		return requestErrorf("a least number of ranks after a restart, and no restarts")
	case j.Restarts > 0 && j.Survive:
		return requestErrorf("a job goes on without the ranks that it loses, or starts all of them again: " +
			"not both")
	case j.Min > 0 && len(j.Apps) > 1:
		return requestErrorf("fewer ranks after a restart: of %d programs it is not known which is to have "+
			"fewer", len(j.Apps))
	case j.Min > 0 && int(j.Stdin) >= j.Min:
		return requestErrorf("standard input for rank %d, and after a restart there may be only %d ranks",
			j.Stdin, j.Min)
	}
	return j.checkMin(ranks)
}

// outputFolder returns the output folder of an attempt: each restart has its own, in that of the job.
func (h *history) outputFolder(folder string) string {
	if folder == "" || h.restarts == 0 {
		return folder
	}
	return filepath.Join(folder, fmt.Sprintf("restart.%d", h.restarts))
}

// found returns the file of a program that the latest attempt found, if it still exists.
func (h *history) found(program int) (string, bool) {
	if program >= len(h.files) {
		return "", false
	}
	file := h.files[program]
	if !filepath.IsAbs(file) {
		return file, true // the hosts look for it
	}
	_, err := os.Stat(file)
	return file, err == nil
}

// isNews reports whether no earlier attempt has printed this note.
func (h *history) isNews(note string) bool {
	if slices.Contains(h.notes, note) {
		return false
	}
	h.notes = append(h.notes, note)
	return true
}
