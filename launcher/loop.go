package launcher

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/pmi"
)

// terminating are the signals that by themselves end a program, and so the job.
var terminating = map[syscall.Signal]bool{syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGQUIT: true, syscall.SIGHUP: true}

// passedOn are the signals that the ranks get from the launcher. SIGURG is not among them: the Go runtime uses it for itself.
var passedOn = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGTSTP,
}

// serve answers the rank's PMI requests.
func (j *running) serve(r *rank) {
	err := j.service.Serve(r.id, func() { j.tell(event{kind: barrierMoved}) })
	j.tell(event{kind: rankSilent, rank: r, err: err})
}

// carry shows the rank's output.
func (j *running) carry(r *rank) {
	var all sync.WaitGroup
	for _, s := range r.streams {
		all.Go(s.copy)
	}
	all.Wait()
	j.tell(event{kind: rankDrained, rank: r})
}

// reap tells of the ranks' ends in the order in which they come.
func (j *running) reap() {
	var pids []int
	for {
		var err error
		if pids, err = j.reaper.Next(pids[:0]); err != nil {
			return
		}
		for _, pid := range pids {
			who, _ := j.byPID.Load(pid)
			r := who.(*rank)
			status := r.bury(j.keeper)
			if j.input != nil {
				j.input.remove(r.id)
			}
			for _, s := range r.streams {
				s.end()
			}
			j.tell(event{kind: rankEnded, rank: r, status: status})
		}
	}
}

// loop runs the job from its start to its end.
func (j *running) loop(ctx context.Context) error {
	signals := make(chan os.Signal, 16)
	for _, s := range passedOn {
		// What was ignored when the launcher was started, as nohup does, stays so.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	// A reader of standard output that goes away must not kill the launcher before it has ended the job.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)

	var timeout <-chan time.Time
	if j.job.Timeout > 0 {
		timer := time.NewTimer(j.job.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	go j.reap()
	go j.start()
	cancelled := ctx.Done()
	for !j.over() {
		select {
		case e := <-j.events:
			j.handle(e)
		case s := <-signals:
			if !j.signal(s.(syscall.Signal)) {
				return j.result()
			}
		case <-timeout:
			j.fail(&Failure{How: TimedOut, Rank: -1, Detail: fmt.Sprintf(
				"the job was not over after %s (--timeout); still running: rank%s", j.job.Timeout, j.living())})
		case <-cancelled:
			cancelled = nil
			j.fail(&Failure{How: Cancelled, Rank: -1, Detail: "the job was cancelled: " + context.Cause(ctx).Error()})
		case <-j.settle:
			j.decide()
		case <-j.grace:
			j.kill()
		case <-j.giveUp:
			j.notice("killed, and not ended after %s, so the kernel holds them: rank%s", killTimeout, j.living())
			return j.result()
		}
	}
	return j.result()
}

// over tells whether nothing more can happen.
func (j *running) over() bool {
	if !j.started {
		return false
	}
	for _, r := range j.ranks {
		if r.pid != 0 && !(r.judged && r.drained) {
			return false
		}
	}
	// The last rank has ended, and nothing better than what is known can turn up.
	if j.cause == nil && j.verdict.best != nil {
		j.decide()
	}
	return true
}

func (j *running) result() error {
	switch {
	case j.startErr != nil:
		return j.startErr
	case j.cause != nil:
		return j.cause
	}
	return nil
}

func (j *running) handle(e event) {
	r := e.rank
	switch e.kind {
	case allStarted:
		j.started, j.startErr = true, e.err
		if e.err != nil {
			j.end()
		} else if j.input != nil {
			j.input.start()
		}
	case barrierMoved:
		j.checkBarrier()
	case rankDrained:
		r.drained = true
	case rankEnded:
		r.ended, r.status = true, e.status
		j.later(overdueAfter, event{kind: rankOverdue, rank: r})
		j.judge(r)
	case rankOverdue:
		if !r.silent {
			j.conns[r.id].Close()
		}
	case rankSilent:
		r.silent = true
		j.heard(r, e.err)
		j.judge(r)
	case rankLingers:
		if !r.ended {
			j.fail(j.failure(r, Silent))
		}
	}
}

// heard takes note of how a rank's PMI connection has ended.
func (j *running) heard(r *rank, err error) {
	switch err := err.(type) {
	case *pmi.Abort:
		f := j.failure(r, Aborted)
		f.Status = err.Code
		j.fail(f)
	case *pmi.Violation:
		f := j.failure(r, Disturbed)
		f.Detail = "broke the PMI protocol: " + err.What
		j.fail(f)
	case nil:
		if s := j.service.State(r.id); !r.ended && (s == pmi.Initialized || s == pmi.InBarrier) {
			j.later(lingerAfter, event{kind: rankLingers, rank: r})
		}
	}
}

// judge looks at a rank when its process and its PMI connection have both ended: only then is it known how far it had come.
func (j *running) judge(r *rank) {
	if !r.ended || !r.silent || r.judged {
		return
	}
	r.judged = true
	state := j.service.Gone(r.id)
	switch {
	case r.status.Signaled():
		f := j.failure(r, Killed)
		if f.Signal = r.status.Signal(); j.forwarded[f.Signal] {
			f.How = Interrupted
		}
		j.fail(f)
	case r.status.ExitStatus() != 0:
		f := j.failure(r, Exited)
		f.Status = r.status.ExitStatus()
		j.fail(f)
	case state == pmi.Initialized || state == pmi.InBarrier:
		j.fail(j.failure(r, Unfinished))
	}
	j.checkBarrier()
}

// checkBarrier finds ranks that wait for one that will not come.
func (j *running) checkBarrier() {
	waits, missing, found := j.service.Stranded()
	if !found || j.cause != nil {
		return
	}
	r := j.ranks[missing]
	f := j.failure(r, Stranded)
	if j.service.State(missing) == pmi.Finalized {
		f.Detail = fmt.Sprintf("has finalized while rank %d waits for it in a barrier", waits)
	} else {
		f.Detail = fmt.Sprintf("exited with status 0 without Init, for which rank %d waits: every rank must call it", waits)
	}
	j.fail(f)
}

func (j *running) failure(r *rank, how How) *Failure {
	return &Failure{How: how, Rank: r.id, PID: r.pid, Host: j.host, Program: r.app.Program}
}

// fail takes a failure into account; the first in time that explains the others becomes the cause.
func (j *running) fail(f *Failure) {
	if j.cause != nil || j.startErr != nil {
		return
	}
	wait, better := j.verdict.add(f)
	switch {
	case !better:
	case wait == 0:
		j.decide()
	default:
		j.settle = time.After(wait)
	}
}

// decide makes the best explanation the cause, says it, and ends the job.
func (j *running) decide() {
	j.settle = nil
	if j.cause != nil {
		return
	}
	j.cause = j.verdict.best
	// Whoever has closed the reader of standard output needs not be told what follows from that.
	if !(j.cause.How == Killed && j.cause.Signal == syscall.SIGPIPE && j.out.isBroken()) {
		j.notice("%s", j.cause)
	}
	j.end()
}

// end asks every rank to end, the stopped ones too. Those that do not are killed after a grace time.
func (j *running) end() {
	j.halt.Store(true)
	if j.grace == nil && !j.killed {
		j.grace = time.After(j.job.Grace)
	}
	for _, r := range j.ranks {
		// Whoever has called Abort is on its way out, and may be about to say why.
		if j.cause == nil || j.cause.How != Aborted || r.id != j.cause.Rank {
			r.signal(syscall.SIGTERM)
		}
	}
	j.signalAll(syscall.SIGCONT)
}

func (j *running) kill() {
	j.halt.Store(true)
	j.grace = nil
	if !j.killed {
		j.killed = true
		j.giveUp = time.After(killTimeout)
	}
	j.signalAll(syscall.SIGKILL)
}

func (j *running) signalAll(sig syscall.Signal) {
	for _, r := range j.ranks {
		r.signal(sig)
	}
}

// signal passes a signal on to the ranks. It tells whether the job goes on.
func (j *running) signal(sig syscall.Signal) bool {
	if terminating[sig] {
		if j.killed && sig == syscall.SIGINT {
			return false
		}
		interrupt := &Failure{How: Interrupted, Rank: -1, Signal: sig}
		if sig == syscall.SIGINT {
			if !j.lastInt.IsZero() && time.Since(j.lastInt) < insist {
				j.fail(interrupt)
				j.kill()
				return true
			}
			j.lastInt = time.Now()
		}
		// Ranks that are not started yet would miss it.
		if !j.started {
			j.fail(interrupt)
		}
	}
	j.forwarded[sig] = true
	j.signalAll(sig)
	if sig == syscall.SIGTSTP {
		// The shell waits for the launcher to stop, too.
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return true
}

// living names the ranks that have not ended, as in "s 0-2,5".
func (j *running) living() string {
	var ids []int
	for _, r := range j.ranks {
		if !r.ended {
			ids = append(ids, r.id)
		}
	}
	return plural(len(ids)) + " " + topology.FormatCPUList(ids)
}
