package supervisor

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

const (
	// overdueAfter is how long a rank's process may be gone before its PMI connection is closed for it: a
	// process that has left the rank's group may hold the other end.
	overdueAfter = 300 * time.Millisecond
	// lingerAfter is how long a rank may live after its PMI connection has ended without Finalize. One that
	// is killed on a busy machine closes its descriptors more than a second before it has ended.
	lingerAfter = 3 * time.Second
	// stopTimeout is how long a rank may be stopped while another one waits for it in a PMI barrier, as in
	// Init. It is the default of WEFT_PEER_TIMEOUT, after which connected ranks give up a silent peer.
	stopTimeout = 10 * time.Second
	// speakAfter is how long a rank that has called Abort is kept waiting while other ranks end, so that its
	// own message comes last and is complete (see letSpeak). It is much less than the time for which such a
	// rank waits for the launcher.
	speakAfter = time.Second
	// killTimeout is how long a killed process may take to end. The kernel may keep it forever.
	killTimeout = 10 * time.Second
	// suspectPoll is the interval at which commitWhenDue retries while an earlier sign of failure is still
	// unexplained.
	suspectPoll = 10 * time.Millisecond
	// unreadGrace is how long the output of a job that was ended may wait without any of it being taken, and
	// deliverTimeout how long altogether.
	unreadGrace    = 2 * time.Second
	deliverTimeout = 10 * time.Second
	// insistWithin is the time within which a second interrupt kills. A second SIGTERM always does.
	insistWithin = time.Second
	// sameSignal is the time within which a second signal counts as the first one: programs such as
	// timeout(1) signal a process and then its group.
	sameSignal = 100 * time.Millisecond
)

// phase is the phase of the job.
type phase uint8

const (
	// left for ending when the cause of a failure is known, for delivering when every rank is over
	running phase = iota
	// ranks have been asked to end; left for killing after the grace time, or for delivering
	ending
	// ranks have been killed; left for delivering, or for over if the kernel holds some
	killing
	delivering // every rank is over, and output waits to be written; left for over
	over       // final
)

// rankState is the state of a rank.
type rankState uint8

const (
	unstarted    rankState = iota // Started leads to alive; a rank that is never started stays here
	alive                         // PMIClosed leads to disconnected, Exited to exited
	disconnected                  // its process lives without PMI connection; Exited leads to ended
	// its process has ended, and its PMI connection is open; PMIClosed leads to ended
	exited
	ended // final: its progress and its end are known
)

// rank is the record of a rank.
type rank struct {
	Rank
	pid        int
	state      rankState
	status     syscall.WaitStatus
	outputOver bool
	// the number of the first sign (symptom) of its failure; signs are numbered in order of arrival, from 1
	// (see rootCause); 0: none
	sign      int
	lost      bool // the job goes on without it
	suspected bool // it is being ended because others have lost it
	aborted   bool // it has called Abort, so it is ending and may be about to say why
	lostPeer  bool // it has lost a peer, or heard of a loss, which may explain what it does since
	over      bool // its process has ended, and its PMI connection

	pmi     pmi.State // as its agent reported: known once its connection or its process has ended
	waitsIn int       // the number of the barrier in which it waits by its agent's report, from 1

	stopped   syscall.Signal // the signal that stopped it; 0 if it is not stopped
	stopSign  int            // the number of the sign by which it was stopped
	stoppedAt time.Time
	suspended bool // the user has suspended the job; until it is continued
}

// Rank describes a rank before its start.
type Rank struct {
	Program, Host string
	Agent         int // the number of the agent that runs it, from 0
}

// Config describes a job.
type Config struct {
	Ranks   []Rank
	Grace   time.Duration // between SIGTERM and SIGKILL
	Timeout time.Duration // 0: none
	Survive bool          // a rank that fails does not end the job
}

// Ready has the pending actions.
type Ready struct {
	Commands   []agent.Command
	Notices    []string // each a line for the user, without newline
	Suspend    bool     // the launcher must stop itself, as the user has asked
	DropOutput bool     // drop unwritten output
}

// A Supervisor makes the decisions about one job. The caller provides the time, calls Tick whenever Next has
// passed, and carries out what Ready returns after each call.
type Supervisor struct {
	config  Config
	ranks   []rank
	barrier barrier
	signs   int // number of signs so far
	timers  timers
	ready   Ready

	phase      phase
	allStarted bool
	notStarted *agent.NotStarted
	root       rootCause
	commitAt   time.Time // when root becomes the cause
	cause      *Failure
	casualties []*Failure // failures of ranks that the job goes on without, in the order of their ends

	forwarded map[syscall.Signal]bool
	lastInt   time.Time
	firstTerm time.Time

	speakBy time.Time // when ranks that have called Abort stop waiting for the others
	spoken  bool      // they have stopped waiting

	unwritten  int       // bytes of output, as last reported
	progressed time.Time // when it last decreased
	deliverBy  time.Time
}

// New returns the supervisor of a job that begins now.
func New(now time.Time, c Config) *Supervisor {
	s := &Supervisor{config: c, forwarded: make(map[syscall.Signal]bool)}
	s.ranks = make([]rank, len(c.Ranks))
	for i, r := range c.Ranks {
		s.ranks[i].Rank = r
	}
	s.barrier.begin(s)
	if c.Timeout > 0 {
		s.timers.add(now.Add(c.Timeout), jobTimeout, 0)
	}
	return s
}

// Ready returns the actions that are due since the last call.
func (s *Supervisor) Ready() Ready {
	r := s.ready
	s.ready = Ready{}
	return r
}

// Next returns when Tick is due; zero if it is not.
func (s *Supervisor) Next() time.Time {
	if len(s.timers) == 0 {
		return time.Time{}
	}
	return s.timers[0].at
}

// Process describes the process of a rank.
type Process struct {
	PID     int // 0 before its start
	Stopped bool
	Ended   bool
}

// Running reports whether the process has been started and has not ended.
func (p Process) Running() bool { return p.PID != 0 && !p.Ended }

// Process returns the process of a rank.
func (s *Supervisor) Process(rank int) Process {
	r := &s.ranks[rank]
	return Process{PID: r.pid, Stopped: r.stopped != 0 || r.suspended,
		Ended: r.state == exited || r.state == ended}
}

// Over reports whether the job is over.
func (s *Supervisor) Over() bool { return s.phase == over }

// Cause returns why the job failed; nil if it did not, or if it could not be started.
func (s *Supervisor) Cause() *Failure { return s.cause }

// NotStarted returns why the job could not be started; nil if it could.
func (s *Supervisor) NotStarted() *agent.NotStarted { return s.notStarted }

// RanksOver reports whether only output remains to be written.
func (s *Supervisor) RanksOver() bool { return s.phase >= delivering }

func (s *Supervisor) do(c agent.Command) { s.ready.Commands = append(s.ready.Commands, c) }

func (s *Supervisor) notice(text string, args ...any) {
	s.ready.Notices = append(s.ready.Notices, fmt.Sprintf(text, args...))
}

func (s *Supervisor) nextSign() int {
	s.signs++
	return s.signs
}

// Tick advances the time.
func (s *Supervisor) Tick(now time.Time) {
	for s.phase != over {
		t, due := s.timers.due(now)
		if !due {
			return
		}
		s.expire(now, t)
	}
}

func (s *Supervisor) expire(now time.Time, t timer) {
	switch t.kind {
	case pmiOverdue:
		if s.ranks[t.rank].state == exited {
			s.do(agent.HangUp{Rank: t.rank})
		}
	case lingering:
		if r := &s.ranks[t.rank]; r.state == disconnected {
			s.fail(now, s.failure(t.rank, Silent), r.sign)
		}
	case stoppedLong:
		s.checkStopped(now, t.rank)
	case debounced:
		s.commitWhenDue(now)
	case graceOver:
		if s.phase == ending {
			s.kill(now)
		}
	case othersSlow:
		s.letSpeak(now)
	case killOverdue:
		if s.phase == killing {
			s.notice("the kernel has not ended rank%s within %s of SIGKILL", s.living(), killTimeout)
			s.finish(true)
		}
	case jobTimeout:
		s.timeOut(now)
	case unread:
		s.checkDelivery(now)
	}
}

func (s *Supervisor) timeOut(now time.Time) {
	if s.phase == delivering && s.cause == nil && s.notStarted == nil {
		s.cause = &Failure{How: TimedOut, Rank: -1, Detail: fmt.Sprintf(
			"the job was not over after %s (--timeout): its ranks have ended, and nobody reads their "+
				"output", s.config.Timeout)}
		s.notice("%s", s.cause)
		s.finish(true)
		return
	}
	s.failAll(now, &Failure{How: TimedOut, Rank: -1, Detail: fmt.Sprintf(
		"the job was not over after %s (--timeout); %s", s.config.Timeout, s.progress())})
}

// progress describes how far the ranks of an overdue job have come.
func (s *Supervisor) progress() string {
	is := func(state rankState) bool {
		return slices.ContainsFunc(s.ranks, func(r rank) bool { return r.state == state })
	}
	switch {
	case is(alive), is(disconnected):
		return "still running: rank" + s.living()
	case is(exited), is(ended):
		return "no rank is running"
	}
	return "no rank had been started yet"
}

// Cancel ends the job.
func (s *Supervisor) Cancel(now time.Time, reason error) {
	s.failAll(now, &Failure{How: Cancelled, Rank: -1, Detail: "the job was cancelled: " + reason.Error()})
	if s.phase == delivering {
		s.finish(true)
	}
}

// failAll handles a failure that no rank has caused.
func (s *Supervisor) failAll(now time.Time, f *Failure) { s.fail(now, f, s.nextSign()) }

func (s *Supervisor) failure(id int, how How) *Failure {
	r := &s.ranks[id]
	return &Failure{How: how, Rank: id, PID: r.pid, Host: r.Host, Program: r.Program}
}

// who names a rank with its host and process.
func (s *Supervisor) who(id int) string { return s.failure(id, 0).who() }

// fail handles a failure. sign is the number of its rank's first sign.
func (s *Supervisor) fail(now time.Time, f *Failure, sign int) {
	if s.survives(f) {
		s.lose(f)
		return
	}
	class := s.class(f)
	if s.cause != nil || s.notStarted != nil || !s.root.add(f, class, sign) {
		return
	}
	s.commitAt = now.Add(class.debounce())
	if class == certain || s.phase == delivering {
		s.commit(now)
		return
	}
	s.timers.add(s.commitAt, debounced, 0)
}

func (s *Supervisor) commitWhenDue(now time.Time) {
	switch {
	case s.cause != nil || s.root.best == nil || now.Before(s.commitAt):
	case s.suspectBefore(s.root.sign):
		s.timers.add(now.Add(suspectPoll), debounced, 0)
	default:
		s.commit(now)
	}
}

// suspectBefore reports whether some rank showed an earlier sign of failure and its outcome is still unknown.
// It soon will be: see overdueAfter and lingerAfter.
func (s *Supervisor) suspectBefore(sign int) bool {
	for i := range s.ranks {
		r := &s.ranks[i]
		if r.sign != 0 && r.sign < sign && (r.state == disconnected || r.state == exited) {
			return true
		}
	}
	return false
}

// commit makes the best explanation the cause, reports it, and ends the job.
func (s *Supervisor) commit(now time.Time) {
	s.cause = s.explainByStop(s.root.best, s.root.sign)
	// A user who has closed the reader of standard output need not be told.
	if s.cause.How != ReaderGone {
		s.notice("%s", s.cause)
	}
	s.end(now)
}

// explainByStop returns a failure that names the rank that was stopped before another one gave up: the peers
// of a stopped rank fail because they wait for it in vain.
func (s *Supervisor) explainByStop(f *Failure, sign int) *Failure {
	if f.class() == certain {
		return f
	}
	for id := range s.ranks {
		r := &s.ranks[id]
		if r.stopped == 0 || r.suspended || r.stopSign > sign || id == f.Rank || r.state == ended {
			continue
		}
		stop := s.failure(id, Stopped)
		stop.Signal, stop.Status = r.stopped, f.ExitStatus()
		stop.Detail = "and " + f.Error()
		return stop
	}
	return f
}

// end asks every rank to end, including stopped ones. Those that do not are killed after a grace time.
func (s *Supervisor) end(now time.Time) {
	s.do(agent.Halt{})
	if s.phase != running {
		return
	}
	s.phase = ending
	s.timers.add(now.Add(s.config.Grace), graceOver, 0)
	others := make([]int, 0, len(s.ranks))
	for id := range s.ranks {
		if !s.ranks[id].aborted {
			others = append(others, id)
		}
	}
	// Ranks that have got SIGQUIT are writing their stacks; SIGTERM would cut them short.
	if !s.forwarded[syscall.SIGQUIT] {
		s.do(agent.Signal{Ranks: others, Signal: syscall.SIGTERM})
	}
	s.do(agent.Signal{Signal: syscall.SIGCONT})
	s.speakBy = now.Add(min(speakAfter, s.config.Grace/2))
	s.timers.add(s.speakBy, othersSlow, 0)
	s.letSpeak(now)
}

// letSpeak releases ranks that have called Abort when every other one has ended, or does not end: their own
// message is printed completely, and no other rank sees them end and adds a message of its own.
func (s *Supervisor) letSpeak(now time.Time) {
	if s.phase < ending || s.spoken {
		return
	}
	others := func(r rank) bool { return !r.aborted && (r.state == alive || r.state == disconnected) }
	if s.phase == ending && now.Before(s.speakBy) && slices.ContainsFunc(s.ranks, others) {
		return
	}
	s.spoken = true
	for id := range s.ranks {
		if s.ranks[id].aborted {
			s.do(agent.HangUp{Rank: id})
		}
	}
}

func (s *Supervisor) kill(now time.Time) {
	s.do(agent.Halt{})
	if s.phase < killing {
		s.phase = killing
		s.timers.add(now.Add(killTimeout), killOverdue, 0)
	}
	s.do(agent.Signal{Signal: syscall.SIGKILL})
}

// living formats the ranks that have not ended, as in "s 0-2,5".
func (s *Supervisor) living() string {
	var ids []int
	for id := range s.ranks {
		if state := s.ranks[id].state; state == alive || state == disconnected {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return "s none"
	case 1:
		return " " + topology.FormatCPUList(ids)
	}
	return "s " + topology.FormatCPUList(ids)
}

// checkOver checks whether every rank is over.
func (s *Supervisor) checkOver(now time.Time) {
	if !s.allStarted || s.phase >= delivering {
		return
	}
	for id := range s.ranks {
		if r := &s.ranks[id]; r.state != unstarted && !(r.state == ended && r.outputOver) {
			return
		}
	}
	s.countCasualties()
	// No better explanation can turn up.
	if s.cause == nil && s.notStarted == nil && s.root.best != nil {
		s.commit(now)
	}
	s.phase = delivering
	s.progressed, s.deliverBy = now, now.Add(deliverTimeout)
	s.timers.add(now.Add(unreadGrace), unread, 0)
}

// Unwritten reports the number of bytes of output that wait to be written. The job is over when its ranks are
// and no output waits. Notices that Ready has not returned yet are not counted, and must be written, too.
func (s *Supervisor) Unwritten(now time.Time, n int) {
	if n < s.unwritten {
		s.progressed = now
	}
	s.unwritten = n
	if s.phase == delivering && n == 0 && len(s.ready.Notices) == 0 {
		s.finish(false)
	}
}

// checkDelivery gives up output that nobody reads if the job has failed. The output of a successful job waits
// for its reader.
func (s *Supervisor) checkDelivery(now time.Time) {
	if s.phase != delivering {
		return
	}
	if s.cause != nil || s.notStarted != nil {
		if now.Sub(s.progressed) >= unreadGrace || !now.Before(s.deliverBy) {
			s.finish(true)
			return
		}
	} else {
		s.deliverBy = now.Add(deliverTimeout)
	}
	s.timers.add(now.Add(unreadGrace/4), unread, 0)
}

func (s *Supervisor) finish(drop bool) {
	s.phase = over
	s.ready.DropOutput = drop
}

// OutputFailed reports that output cannot be written.
func (s *Supervisor) OutputFailed(now time.Time, stream string, err error) {
	f := &Failure{How: OutputLost, Rank: -1, Detail: fmt.Sprintf("%s cannot be written: %v", stream, err)}
	if err == syscall.EPIPE {
		f = &Failure{How: ReaderGone, Rank: -1, Detail: "nobody reads " + stream + " any more"}
	}
	// A rank that failed before did so while there was a reader.
	if s.root.best == nil {
		s.failAll(now, f)
	}
}

// Deadlock ends the job because of a deadlock that has been reported to the user.
func (s *Supervisor) Deadlock(now time.Time, text string) {
	s.failAll(now, &Failure{How: Deadlocked, Rank: -1, Detail: text})
}

// terminating has the signals that end a program by default, and so the job.
var terminating = map[syscall.Signal]bool{
	syscall.SIGINT: true, syscall.SIGTERM: true, syscall.SIGQUIT: true, syscall.SIGHUP: true,
}

// Terminating reports whether a signal ends a program by default.
func Terminating(sig syscall.Signal) bool { return terminating[sig] }

// Signal passes a user's signal to the ranks.
func (s *Supervisor) Signal(now time.Time, sig syscall.Signal) {
	if terminating[sig] && !s.terminate(now, sig) {
		return
	}
	s.forwarded[sig] = true
	s.do(agent.Signal{Signal: sig})
	if terminating[sig] {
		s.do(agent.Signal{Signal: syscall.SIGCONT}) // a stopped rank would not notice
	}
	if sig == syscall.SIGTSTP {
		// In their own sessions, ranks do not stop on SIGTSTP. The shell waits for the launcher to stop, too.
		for id := range s.ranks {
			s.ranks[id].suspended = true
		}
		s.do(agent.Signal{Signal: syscall.SIGSTOP})
		s.ready.Suspend = true
	}
}

// terminate handles a terminating signal. It reports whether to pass it to the ranks.
func (s *Supervisor) terminate(now time.Time, sig syscall.Signal) bool {
	interrupt := &Failure{How: Interrupted, Rank: -1, Signal: sig}
	if s.phase == delivering {
		if s.cause == nil && s.notStarted == nil {
			s.cause = interrupt
			s.notice("%s", s.cause)
		}
		s.finish(true)
		return false
	}
	first := &s.firstTerm
	if sig == syscall.SIGINT {
		first = &s.lastInt
	}
	switch since := now.Sub(*first); {
	case sig != syscall.SIGINT && sig != syscall.SIGTERM:
	case first.IsZero(), sig == syscall.SIGINT && since >= insistWithin:
		*first = now
	case since < sameSignal:
		return false
	case s.phase == killing && sig == syscall.SIGINT:
		s.finish(true)
		return false
	default:
		s.failAll(now, interrupt)
		s.kill(now)
		return false
	}
	// Ranks not started yet would miss it.
	if !s.allStarted {
		s.failAll(now, interrupt)
	}
	return true
}
