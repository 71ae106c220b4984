package supervisor

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A script plays a job: time passes when it says so, and what the supervisor wants is collected.
type script struct {
	t        *testing.T
	s        *Supervisor
	now      time.Time
	agents   []*agent.PMI // what serves the ranks of each agent
	commands []agent.Command
	notices  []string
	dropped  bool
}

// play begins a job whose ranks have all been started, by one agent.
func play(t *testing.T, ranks int) *script { return playOn(t, make([]int, ranks)...) }

// playOn begins a job whose ranks have all been started, by the agents with these numbers.
func playOn(t *testing.T, agents ...int) *script {
	p := beginOn(t, Config{}, agents...)
	for r := range agents {
		p.event(agent.Started{Rank: r, PID: 100 + r})
	}
	p.event(agent.AllStarted{})
	return p
}

func begin(t *testing.T, ranks int, timeout time.Duration) *script {
	return beginOn(t, Config{Timeout: timeout}, make([]int, ranks)...)
}

func beginOn(t *testing.T, config Config, agents ...int) *script {
	config.Grace = 2 * time.Second
	p := &script{t: t, now: time.Unix(1000, 0)}
	starts := make([]agent.Start, slices.Max(agents)+1)
	for id, number := range agents {
		config.Ranks = append(config.Ranks, Rank{Program: "prog", Host: "host", Agent: number})
		starts[number].Ranks = append(starts[number].Ranks, agent.Rank{ID: id})
	}
	for _, start := range starts {
		start.PMI = pmi.Config{KVSName: "k", Size: len(agents), Survive: config.Survive}
		p.agents = append(p.agents, agent.NewPMI(start))
	}
	p.s = New(p.now, config)
	p.collect()
	return p
}

// collect takes what the supervisor wants. The agents do at once what concerns PMI.
func (p *script) collect() {
	r := p.s.Ready()
	p.commands = append(p.commands, r.Commands...)
	p.notices = append(p.notices, r.Notices...)
	p.dropped = p.dropped || r.DropOutput
	for _, c := range r.Commands {
		for _, a := range p.agents {
			_, events := a.Do(c)
			p.event(events...)
		}
	}
}

func (p *script) event(events ...agent.Event) *script {
	for _, e := range events {
		p.s.Event(p.now, e)
		p.collect()
	}
	return p
}

func (p *script) pass(d time.Duration) *script {
	p.now = p.now.Add(d)
	p.s.Tick(p.now)
	p.collect()
	return p
}

func (p *script) signal(sig syscall.Signal) *script {
	p.s.Signal(p.now, sig)
	p.collect()
	return p
}

func (p *script) unwritten(n int) *script {
	p.s.Unwritten(p.now, n)
	p.collect()
	return p
}

// agentOf serves a rank PMI.
func (p *script) agentOf(rank int) *agent.PMI { return p.agents[p.s.ranks[rank].Agent] }

func (p *script) lines(rank int, lines ...string) *script {
	for _, l := range lines {
		_, events := p.agentOf(rank).Line(rank, l)
		p.event(events...)
	}
	return p
}

// init has ranks be between Init and Finalize.
func (p *script) init() *script {
	for r := range p.s.ranks {
		p.lines(r, "cmd=init pmi_version=1 pmi_subversion=1")
	}
	return p
}

func (p *script) closed(rank int) *script {
	p.event(agent.PMIClosed{Rank: rank, State: p.agentOf(rank).State(rank)})
	return p.over(rank)
}

// over tells the agent when a rank is.
func (p *script) over(rank int) *script {
	if p.s.ranks[rank].over {
		_, events := p.agentOf(rank).Gone(rank)
		p.event(events...)
	}
	return p
}

func (p *script) exits(rank, status int) *script {
	return p.ends(rank, syscall.WaitStatus(status<<8))
}

func (p *script) killed(rank int, sig syscall.Signal) *script {
	return p.ends(rank, syscall.WaitStatus(sig))
}

func (p *script) ends(rank int, status syscall.WaitStatus) *script {
	p.event(agent.Exited{Rank: rank, Status: status, State: p.agentOf(rank).State(rank)},
		agent.OutputEnd{Rank: rank})
	return p.over(rank)
}

// got reports whether the ranks have been sent the signal.
func (p *script) got(sig syscall.Signal) bool {
	return slices.ContainsFunc(p.commands, func(c agent.Command) bool {
		s, ok := c.(agent.Signal)
		return ok && s.Signal == sig
	})
}

func (p *script) cause(how How, rank int) *Failure {
	p.t.Helper()
	f := p.s.Cause()
	require.NotNil(p.t, f)
	require.Equal(p.t, []any{how, rank}, []any{f.How, f.Rank}, f.Error())
	return f
}

func TestJobThatGoesWell(t *testing.T) {
	p := play(t, 2).init()
	for r := range 2 {
		p.lines(r, "cmd=finalize").closed(r).exits(r, 0)
	}
	require.True(t, p.s.RanksOver())
	require.False(t, p.s.Over())
	p.unwritten(0)
	require.True(t, p.s.Over())
	require.Nil(t, p.s.Cause())
	require.Empty(t, p.notices)
}

// The rank that exits first is the cause, though its peers, which noticed, are known to have ended before it.
func TestCauseIsTheRankWithTheFirstSign(t *testing.T) {
	p := play(t, 3).init()
	p.closed(1) // os.Exit(5): its process is not gone yet
	p.closed(0).exits(0, 1)
	p.lines(2, "cmd=abort exitcode=1")
	p.pass(100 * time.Millisecond)
	require.Nil(t, p.s.Cause(), "it is not known yet how rank 1 ends")
	p.exits(1, 5).pass(100 * time.Millisecond)
	require.Equal(t, 5, p.cause(Exited, 1).ExitStatus())
	require.Len(t, p.notices, 1)
}

func TestCauseAmongFailures(t *testing.T) {
	for name, c := range map[string]struct {
		play func(p *script)
		how  How
		rank int
	}{
		"the first in time": {func(p *script) { p.closed(2).exits(2, 1).closed(0).exits(0, 1) }, Exited, 2},
		"a kill explains an exit that was seen before it": {
			func(p *script) { p.closed(2).exits(2, 1).closed(1).killed(1, syscall.SIGKILL) }, Killed, 1},
		"an abort may follow from a kill": {
			func(p *script) { p.closed(1).lines(0, "cmd=abort exitcode=1").killed(1, syscall.SIGSEGV) },
			Killed, 1},
		"a broken pipe is no cause": {
			func(p *script) { p.closed(0).killed(0, syscall.SIGPIPE).closed(2).exits(2, 3) }, Exited, 2},
		"unless there is no other": {func(p *script) { p.closed(0).killed(0, syscall.SIGPIPE) }, Killed, 0},
		"and though another one waits for it in a barrier": {
			func(p *script) { p.lines(1, "cmd=barrier_in").closed(0).killed(0, syscall.SIGPIPE) }, Killed, 0},
		"a barrier that cannot complete": {
			func(p *script) { p.lines(0, "cmd=barrier_in").lines(1, "cmd=finalize").closed(1).exits(1, 0) },
			Stranded, 1},
		"a rank that leaves without Finalize": {func(p *script) { p.closed(1).exits(1, 0) }, Unfinished, 1},
		"a rank that goes on without Finalize": {func(p *script) { p.closed(1).pass(4 * time.Second) },
			Silent, 1},
		"a line that is none": {func(p *script) { p.lines(1, "nonsense") }, Disturbed, 1},
		"an agent that puts too much": {
			func(p *script) {
				p.event(agent.Arrived{Rank: 2, More: true, Puts: []string{"k", string(make([]byte, 4<<20))}})
			},
			Disturbed, 2},
		"a rank that has lost a peer is not the cause": {
			func(p *script) {
				p.lines(0, "cmd=peer_lost peer=1").closed(0).exits(0,
					1).pass(100*time.Millisecond).closed(1).exits(1, 5)
			},
			Exited, 1},
		"unless nobody else has failed": {
			func(p *script) { p.lines(0, "cmd=peer_lost peer=1", "cmd=abort exitcode=1") }, Aborted, 0},
		"a lost agent": {
			func(p *script) { p.event(agent.Lost{Ranks: []int{1, 2}, Reason: "the host is gone"}) },
			AgentLost, -1},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, 3).init()
			c.play(p)
			p.pass(time.Second)
			p.cause(c.how, c.rank)
			require.True(t, p.got(syscall.SIGTERM))
			require.Len(t, p.notices, 1)
		})
	}
}

const initLine = "cmd=init pmi_version=1 pmi_subversion=1"

// A rank that cannot come to a barrier any more is found, whether those that wait are all of an agent's ranks
// or only some, and whether it goes before they wait or while they do.
func TestRanksThatWaitForOneThatIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		agents []int
		play   func(p *script)
		says   string
	}{
		"one waits on an agent of its own": {[]int{0, 1},
			func(p *script) { p.lines(0, initLine, "cmd=barrier_in").closed(1).exits(1, 0) },
			"rank 1 on host (pid 101, prog) exited with status 0 without Init, for which rank 0 waits"},
		"one of two of an agent waits": {[]int{0, 0, 1},
			func(p *script) { p.lines(1, initLine, "cmd=barrier_in").closed(2).exits(2, 0) },
			"rank 2 on host (pid 102, prog) exited with status 0 without Init, for which rank 1 waits"},
		"one comes when the other is gone": {[]int{0, 0, 1},
			func(p *script) { p.closed(2).exits(2, 0).lines(1, initLine, "cmd=barrier_in") },
			"rank 2 on host (pid 102, prog) exited with status 0 without Init, for which rank 1 waits"},
		"the other has finalized": {[]int{0, 0, 1},
			func(p *script) {
				p.lines(2, initLine, "cmd=finalize").lines(1, initLine, "cmd=barrier_in").closed(2)
			},
			"rank 2 on host (pid 102, prog) has finalized while rank 1 waits for it in a barrier"},
		"in the second barrier": {[]int{0, 0, 1},
			func(p *script) {
				for r := range 3 {
					p.lines(r, initLine, "cmd=barrier_in")
				}
				p.lines(1, "cmd=barrier_in").lines(2, "cmd=finalize").closed(2).exits(2, 0)
			},
			"rank 2 on host (pid 102, prog) has finalized while rank 1 waits for it in a barrier"},
	} {
		t.Run(name, func(t *testing.T) {
			p := playOn(t, c.agents...)
			c.play(p)
			p.pass(time.Second)
			require.Contains(t, p.s.Cause().Error(), c.says)
		})
	}
}

// Barriers of a job that ends well are over when its first rank is: nobody is taken to wait in one.
func TestNobodyIsStrandedInABarrierThatWasPassed(t *testing.T) {
	p := playOn(t, 0, 0, 1)
	for range 3 {
		for r := range 3 {
			if p.s.barrier.passed == 0 {
				p.lines(r, initLine)
			}
			p.lines(r, "cmd=barrier_in")
		}
		p.s.barrier.ask()
		p.collect()
	}
	for r := range 3 {
		p.lines(r, "cmd=finalize").closed(r).exits(r, 0)
	}
	p.unwritten(0)
	require.True(t, p.s.Over())
	require.Nil(t, p.s.Cause())
	require.Equal(t, 3, p.s.barrier.passed)
}

// A job that goes on without a rank passes its barriers without it: one that was about to come, one of an
// agent that has others, and the last of an agent.
func TestBarriersPassWithoutRanksThatFailed(t *testing.T) {
	p := beginOn(t, Config{Survive: true}, 0, 0, 1, 2)
	for r := range 4 {
		p.event(agent.Started{Rank: r, PID: 100 + r})
	}
	p.event(agent.AllStarted{})
	p.init()
	p.lines(0, "cmd=barrier_in").lines(3, "cmd=barrier_in").closed(2).killed(2, syscall.SIGKILL)
	require.Zero(t, p.s.barrier.passed, "rank 1 may come")
	p.closed(1).killed(1, syscall.SIGKILL)
	require.Equal(t, 1, p.s.barrier.passed)
	p.lines(0, "cmd=barrier_in").lines(3, "cmd=barrier_in")
	require.Equal(t, 2, p.s.barrier.passed)
	p.lines(0, "cmd=barrier_in").event(agent.Lost{Ranks: []int{3}, Reason: "the host is gone"})
	require.Equal(t, 3, p.s.barrier.passed)
}

// Of a job that has lost all ranks, the end of the last is told, and that the job went on without the others.
func TestAllRanksAreLost(t *testing.T) {
	p := beginOn(t, Config{Survive: true}, 0, 0)
	for r := range 2 {
		p.event(agent.Started{Rank: r, PID: 100 + r})
	}
	p.event(agent.AllStarted{})
	p.init().closed(0).killed(0, syscall.SIGKILL).closed(1).killed(1, syscall.SIGKILL).unwritten(0)
	const first = "rank 0 on host (pid 100, prog) was killed by signal 9 (SIGKILL)"
	require.Equal(t, []string{first + ": the job goes on without it",
		"rank 1 on host (pid 101, prog) was killed by signal 9 (SIGKILL)",
		"no rank is left; the first failure: " + first}, p.notices)
}

// A rank that has ended is not lost with its host: it is what it was, whether the job goes on without those
// that are lost or not.
func TestRanksThatHaveEndedAreNotLostWithTheirHost(t *testing.T) {
	lost := agent.Lost{Ranks: []int{1, 2}, Reason: "the host is gone"}
	start := func(survive bool) *script {
		p := beginOn(t, Config{Survive: survive}, 0, 1, 1)
		for r := range 3 {
			p.event(agent.Started{Rank: r, PID: 100 + r})
		}
		return p.event(agent.AllStarted{}).init()
	}
	finish := func(p *script, rank int) { p.lines(rank, "cmd=finalize").closed(rank).exits(rank, 0) }
	for _, survive := range []bool{true, false} {
		p := start(survive)
		finish(p, 1)
		finish(p, 2)
		p.event(lost)
		finish(p, 0)
		p.event(lost).unwritten(0)
		require.True(t, p.s.Over())
		require.Nil(t, p.s.Cause())
		require.Empty(t, p.notices)
	}
	p := start(true)
	finish(p, 1)
	p.event(lost)
	require.Equal(t, []string{"rank 2 on host (pid 102, prog) is lost with its host: the host is gone: " +
		"the job goes on without it"}, p.notices)
	p = start(true)
	finish(p, 1)
	p.event(agent.Lost{Ranks: lost.Ranks, Reason: "host host is lost: it is silent"})
	require.Equal(t, []string{"rank 2 on host (pid 102, prog) is lost with its host: it is silent: " +
		"the job goes on without it"}, p.notices)
	p = start(false)
	finish(p, 1)
	p.event(lost).cause(AgentLost, -1)
	require.Equal(t, "the host is gone (rank 2)", p.s.Cause().Error())
	p = start(false)
	p.event(agent.Lost{Reason: "lost before it was to start ranks"}).cause(AgentLost, -1)
}

// Of two ranks that have lost each other one is ended, and it is told who has lost it.
func TestRanksThatHaveLostEachOther(t *testing.T) {
	p := beginOn(t, Config{Survive: true}, 0, 0, 0)
	for r := range 3 {
		p.event(agent.Started{Rank: r, PID: 100 + r})
	}
	p.event(agent.AllStarted{})
	p.init().lines(0, "cmd=peer_lost peer=2").lines(2, "cmd=peer_lost peer=0", "cmd=peer_lost peer=1")
	require.Equal(t, []string{"rank 0 has lost rank 2 on host (pid 102, prog), which has to end"},
		p.notices)
	p.closed(2).killed(2, syscall.SIGKILL)
	require.Len(t, p.notices, 2)
}

// A kill is known to be the cause at once.
func TestKillNeedsNoSecondThought(t *testing.T) {
	play(t, 2).closed(1).killed(1, syscall.SIGKILL).cause(Killed, 1)
}

// A rank of another host is continued there.
func TestStoppedRankOfAnotherHost(t *testing.T) {
	p := beginOn(t, Config{}, 0, 1).event(agent.Started{Rank: 1, PID: 101})
	p.event(agent.AllStarted{}, agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP})
	require.Equal(t, []string{"rank 1 on host (pid 101, prog) is stopped (SIGSTOP): the job waits for it; " +
		"kill -CONT 101 there continues it"}, p.notices)
}

// A rank that is stopped is said to be; if others fail meanwhile it is the cause, with their status.
func TestStoppedRankIsTheCauseOfWhatFollows(t *testing.T) {
	p := play(t, 3).init().event(agent.Stopped{Rank: 2, Signal: syscall.SIGSTOP})
	require.Equal(t, []string{"rank 2 on host (pid 102, prog) is stopped (SIGSTOP): the job waits for it; " +
		"kill -CONT 102 continues it"}, p.notices)
	p.lines(0, "cmd=abort exitcode=7").pass(time.Second)
	require.Equal(t, 7, p.cause(Stopped, 2).ExitStatus())

	p = play(t, 3).init().event(agent.Stopped{Rank: 2, Signal: syscall.SIGSTOP}, agent.Continued{Rank: 2})
	p.lines(0, "cmd=abort exitcode=7").pass(time.Second)
	p.cause(Aborted, 0)

	p = play(t, 3).init().event(agent.Stopped{Rank: 2, Signal: syscall.SIGSTOP})
	p.closed(1).killed(1, syscall.SIGKILL)
	p.cause(Killed, 1)
}

// The report that a rank has stopped may come after that of its end: nobody waits for it then.
func TestRankThatHasEndedIsNotStopped(t *testing.T) {
	for name, play := range map[string]func(p *script){
		"ended":                    func(p *script) { p.closed(1).exits(1, 0) },
		"with its connection open": func(p *script) { p.exits(1, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			p := playOn(t, 0, 1)
			play(p)
			p.event(agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP})
			require.Empty(t, p.notices)
			require.False(t, p.s.Process(1).Stopped)
		})
	}
}

// A rank that is stopped inside Init is found by nobody else: the others wait for it in a barrier of PMI.
func TestRankStoppedInInitEndsTheJob(t *testing.T) {
	p := play(t, 3).lines(0, "cmd=init pmi_version=1 pmi_subversion=1", "cmd=barrier_in")
	p.event(agent.Stopped{Rank: 2, Signal: syscall.SIGSTOP}).pass(9 * time.Second)
	require.Nil(t, p.s.Cause())
	p.pass(time.Second)
	f := p.cause(Stopped, 2)
	require.Equal(t, 1, f.ExitStatus())
	require.Contains(t, f.Error(), "is stopped (SIGSTOP), and rank 0 waits for it in a barrier")

	p = play(t, 2).event(agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP}).pass(time.Hour)
	require.Nil(t, p.s.Cause(), "nobody waits for it")
	p.lines(0, initLine, "cmd=barrier_in").event(agent.Continued{Rank: 1}).pass(time.Hour)
	require.Nil(t, p.s.Cause(), "it goes on")
}

// A signal that ends programs reaches ranks that are stopped, too.
func TestTerminatingSignalContinuesStoppedRanks(t *testing.T) {
	p := play(t, 2).event(agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP}).signal(syscall.SIGTERM)
	require.True(t, p.got(syscall.SIGTERM) && p.got(syscall.SIGCONT))
}

// Ranks that the user has suspended are not reported, and stop though they lead sessions.
func TestSuspendedJobIsNotReported(t *testing.T) {
	p := play(t, 2)
	p.s.Signal(p.now, syscall.SIGTSTP)
	require.True(t, p.s.ready.Suspend)
	p.collect()
	require.True(t, p.got(syscall.SIGSTOP))
	p.event(agent.Stopped{Rank: 0, Signal: syscall.SIGSTOP}).signal(syscall.SIGCONT)
	p.event(agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP}, agent.Continued{Rank: 0},
		agent.Continued{Rank: 1})
	require.Empty(t, p.notices)
	p.event(agent.Stopped{Rank: 1, Signal: syscall.SIGSTOP})
	require.Len(t, p.notices, 1, "from now on it is not the user's doing")
}

// All ranks that call Abort may say why: they are not sent SIGTERM, and are let go when the others are gone, so
// that none of these sees them go.
func TestRanksThatAbortAreLetSpeak(t *testing.T) {
	p := play(t, 4).init().lines(2, "cmd=abort exitcode=1").pass(10*time.Millisecond).lines(0,
		"cmd=abort exitcode=1")
	require.NotContains(t, p.commands, agent.HangUp{Rank: 2})
	p.pass(100*time.Millisecond).cause(Aborted, 2)
	require.Len(t, p.notices, 1)
	require.Contains(t, p.commands, agent.Signal{Ranks: []int{1, 3}, Signal: syscall.SIGTERM})
	p.closed(1).killed(1, syscall.SIGTERM)
	require.NotContains(t, p.commands, agent.HangUp{Rank: 0}, "rank 3 would see it go")
	p.lines(3, "cmd=abort exitcode=1")
	for _, r := range []int{0, 2, 3} {
		require.Contains(t, p.commands, agent.HangUp{Rank: r})
	}
}

// One that does not end keeps nobody from saying why, and one that comes late need not wait.
func TestRanksThatAbortDoNotWaitForStubbornOnes(t *testing.T) {
	p := play(t, 3).init().lines(2, "cmd=abort exitcode=1").pass(100 * time.Millisecond)
	require.NotContains(t, p.commands, agent.HangUp{Rank: 2})
	p.pass(speakAfter)
	require.Contains(t, p.commands, agent.HangUp{Rank: 2})
	require.False(t, p.got(syscall.SIGKILL))
	p.lines(1, "cmd=abort exitcode=1")
	require.Contains(t, p.commands, agent.HangUp{Rank: 1})
}

func TestRanksThatDoNotEndAreKilled(t *testing.T) {
	p := play(t, 2).closed(0).exits(0, 3).pass(100 * time.Millisecond)
	require.False(t, p.got(syscall.SIGKILL))
	p.pass(2 * time.Second)
	require.True(t, p.got(syscall.SIGKILL))
	p.pass(10 * time.Second)
	require.True(t, p.s.Over())
	require.Contains(t, p.notices[1], "the kernel has not ended rank 1 within 10s of SIGKILL")
	p.cause(Exited, 0)
}

// A signal that comes while ranks are being started ends the job; nothing is claimed of ranks that were never
// started.
func TestSignalDuringTheStart(t *testing.T) {
	p := begin(t, 3, 0).event(agent.Started{Rank: 0, PID: 100}).signal(syscall.SIGTERM)
	require.Contains(t, p.commands, agent.Command(agent.Halt{}))
	p.cause(Interrupted, -1)
	p.event(agent.AllStarted{}).closed(0).killed(0, syscall.SIGTERM).unwritten(0)
	require.True(t, p.s.Over())
	require.Equal(t, []string{"ended by SIGTERM"}, p.notices)
}

func TestSecondSignalKills(t *testing.T) {
	for _, c := range []struct {
		sig   syscall.Signal
		after time.Duration
		kills bool
	}{
		{syscall.SIGTERM, time.Millisecond, false}, // timeout(1) signals a process and then its group
		{syscall.SIGTERM, 200 * time.Millisecond, true},
		{syscall.SIGTERM, time.Hour, true},
		{syscall.SIGINT, time.Millisecond, false},
		{syscall.SIGINT, 200 * time.Millisecond, true},
		{syscall.SIGINT, 2 * time.Second, false},
		{syscall.SIGQUIT, 200 * time.Millisecond, false},
	} {
		t.Run(fmt.Sprint(c.sig, c.after), func(t *testing.T) {
			p := play(t, 2).signal(c.sig)
			require.False(t, p.got(syscall.SIGKILL))
			p.pass(c.after).signal(c.sig)
			require.Equal(t, c.kills, p.got(syscall.SIGKILL))
			if c.kills {
				require.Equal(t, 128+int(c.sig), p.cause(Interrupted, -1).ExitStatus())
			}
		})
	}
}

// Ranks that write their stacks after SIGQUIT are not cut short, and their status is that of the signal.
func TestQuitShowsAllStacks(t *testing.T) {
	p := play(t, 2).signal(syscall.SIGQUIT).closed(0).exits(0, 2)
	require.Equal(t, 131, p.cause(Interrupted, 0).ExitStatus())
	require.False(t, p.got(syscall.SIGTERM))
	p.pass(2 * time.Second)
	require.True(t, p.got(syscall.SIGKILL), "the grace time is for them, too")
}

func TestTimeoutSaysHowFarTheRanksAre(t *testing.T) {
	p := begin(t, 3, time.Minute)
	p.pass(time.Minute)
	require.ErrorContains(t, p.cause(TimedOut, -1), "(--timeout); no rank had been started yet")
	p = begin(t, 3, time.Minute)
	p.event(agent.Started{Rank: 1, PID: 1}).pass(time.Minute)
	require.ErrorContains(t, p.cause(TimedOut, -1), "(--timeout); still running: rank 1")
}

func TestTimeoutEndsTheJob(t *testing.T) {
	p := begin(t, 2, time.Minute)
	p.event(agent.Started{Rank: 0, PID: 1}, agent.Started{Rank: 1, PID: 2},
		agent.AllStarted{}).pass(time.Minute)
	require.Equal(t, 124, p.cause(TimedOut, -1).ExitStatus())
	require.True(t, p.got(syscall.SIGTERM))
}

// The output of a job that went well waits for its reader, but not beyond the timeout or a signal; that of a
// job that has failed is dropped when nobody has taken any of it for some time.
func TestOutputThatNobodyReads(t *testing.T) {
	well := func(t *testing.T) *script {
		p := begin(t, 1, time.Hour).event(agent.Started{Rank: 0, PID: 1}, agent.AllStarted{}).unwritten(5000)
		p.closed(0).exits(0, 0).pass(10 * time.Minute)
		require.False(t, p.s.Over())
		return p
	}
	t.Run("well", func(t *testing.T) {
		p := well(t).unwritten(0)
		require.True(t, p.s.Over())
		require.Nil(t, p.s.Cause())
		require.False(t, p.dropped)
	})
	t.Run("timeout", func(t *testing.T) {
		p := well(t).pass(time.Hour)
		require.True(t, p.s.Over() && p.dropped)
		p.cause(TimedOut, -1)
	})
	t.Run("signal", func(t *testing.T) {
		p := well(t).signal(syscall.SIGTERM)
		require.True(t, p.s.Over() && p.dropped)
		p.cause(Interrupted, -1)
	})
	t.Run("cancelled", func(t *testing.T) {
		p := well(t)
		p.s.Cancel(p.now, errors.New("enough"))
		p.collect()
		require.True(t, p.s.Over() && p.dropped)
	})
	t.Run("failed", func(t *testing.T) {
		p := play(t, 1).unwritten(5000).closed(0).exits(0, 1)
		for n := 4000; n >= 0; n -= 1000 {
			require.False(t, p.s.Over())
			p.pass(1900 * time.Millisecond).unwritten(n)
		}
		require.True(t, p.s.Over() && !p.dropped, "a slow reader gets all")
		p = play(t, 1).unwritten(5000).closed(0).exits(0, 1).pass(time.Second)
		require.False(t, p.s.Over())
		p.pass(3 * time.Second)
		require.True(t, p.s.Over() && p.dropped)
		p = play(t, 1).unwritten(5000).closed(0).exits(0, 1)
		for n := 4999; !p.s.Over(); n-- {
			require.Greater(t, n, 4980,
				"a reader that takes nearly nothing does not hold the job up for ever")
			p.pass(time.Second).unwritten(n)
		}
	})
}

func TestOutputThatCannotBeWritten(t *testing.T) {
	p := play(t, 2)
	p.s.OutputFailed(p.now, "standard output", syscall.ENOSPC)
	p.collect()
	require.Equal(t, 1, p.cause(OutputLost, -1).ExitStatus())
	require.Equal(t, []string{"standard output cannot be written: no space left on device"}, p.notices)
	require.True(t, p.got(syscall.SIGTERM))

	p = play(t, 2)
	p.s.OutputFailed(p.now, "standard output", syscall.EPIPE)
	p.collect()
	require.Equal(t, 141, p.cause(ReaderGone, -1).ExitStatus())
	require.Empty(t, p.notices, "whoever has closed it needs not be told")

	p = play(t, 2).closed(0).exits(0, 3)
	p.s.OutputFailed(p.now, "standard output", syscall.EPIPE)
	p.pass(time.Second).cause(Exited, 0)
}

func TestFailureExitStatusIsNeverThatOfSuccess(t *testing.T) {
	for status, want := range map[int]int{0: 1, 1: 1, 7: 7, 255: 255, 256: 1, 257: 1} {
		require.Equal(t, want, (&Failure{How: Aborted, Status: status}).ExitStatus())
	}
	require.Equal(t, 139, (&Failure{How: Killed, Signal: syscall.SIGSEGV}).ExitStatus())
}

// The last rank's end is the cause, and comes when no output waits any more: the job is not over before the
// cause is said.
func TestTheJobIsNotOverBeforeItsCauseIsSaid(t *testing.T) {
	p := play(t, 1)
	p.s.Event(p.now, agent.PMIClosed{Rank: 0})
	p.s.Event(p.now, agent.OutputEnd{Rank: 0})
	p.s.Event(p.now, agent.Exited{Rank: 0, Status: syscall.WaitStatus(13 << 8)})
	p.s.Unwritten(p.now, 0)
	require.False(t, p.s.Over())
	require.Len(t, p.s.Ready().Notices, 1)
	p.s.Unwritten(p.now, 0)
	require.True(t, p.s.Over())
	require.Equal(t, 13, p.s.Cause().ExitStatus())
}

// A host that is lost while another one is still starting its ranks does not end the job: these ranks may come.
func TestLostHostDoesNotEndTheStartOfAnother(t *testing.T) {
	p := beginOn(t, Config{Survive: true}, 0, 1)
	p.event(agent.Started{Rank: 0, PID: 100}, agent.Lost{Ranks: []int{0}, Reason: "gone", Starting: true})
	p.unwritten(0)
	require.False(t, p.s.RanksOver(), "rank 1 has not been started yet")
	p.event(agent.Started{Rank: 1, PID: 101}, agent.AllStarted{})
	p.lines(1, initLine, "cmd=finalize").closed(1).exits(1, 0).unwritten(0)
	require.True(t, p.s.Over())
	p.cause(RanksLost, -1)
}
