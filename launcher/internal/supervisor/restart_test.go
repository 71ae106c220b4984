package supervisor

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A job is started again for a loss, and for nothing that its program or its user has wanted.
func TestRestartableIsALossAlone(t *testing.T) {
	for name, c := range map[string]struct {
		how   How
		again bool
		play  func(p *script)
	}{
		"killed":             {Killed, true, func(p *script) { p.init().closed(1).killed(1, syscall.SIGKILL) }},
		"killed before Init": {Killed, true, func(p *script) { p.closed(1).killed(1, syscall.SIGKILL) }},
		"host": {AgentLost, true, func(p *script) {
			p.init().event(agent.Lost{Ranks: []int{0, 1}, Reason: "gone"})
		}},
		"crash":            {Exited, true, func(p *script) { p.init().closed(1).exits(1, 2).pass(time.Second) }},
		"left":             {Unfinished, true, func(p *script) { p.init().closed(1).exits(1, 0).pass(time.Second) }},
		"wrong argument":   {Exited, false, func(p *script) { p.closed(1).exits(1, 2).pass(time.Second) }},
		"verdict":          {Exited, false, func(p *script) { p.init().lines(1, "cmd=finalize").closed(1).exits(1, 1).pass(time.Second) }},
		"abort":            {Aborted, false, func(p *script) { p.init().lines(1, "cmd=abort exitcode=7").pass(time.Second) }},
		"interrupt":        {Interrupted, false, func(p *script) { p.init().signal(syscall.SIGINT).closed(1).killed(1, syscall.SIGINT) }},
		"killed when told": {Killed, false, func(p *script) { p.init().signal(syscall.SIGTERM).closed(1).killed(1, syscall.SIGKILL) }},
		"cancelled": {Cancelled, false, func(p *script) {
			p.init()
			p.s.Cancel(p.now, errors.New("enough"))
		}},
		"deadlock": {Deadlocked, false, func(p *script) {
			p.init()
			p.s.Deadlock(p.now, "deadlock")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, 3)
			c.play(p)
			require.NotNil(t, p.s.Cause())
			require.Equal(t, c.how, p.s.Cause().How)
			require.Equal(t, c.again, p.s.Restartable())
		})
	}
}

// A rank that could not reach a peer returns the error, and so calls Abort: that is a loss, too.
func TestRestartableAfterAPeerIsLost(t *testing.T) {
	p := play(t, 3).init()
	p.lines(1, "cmd=peer_lost peer=2", "cmd=abort exitcode=1").pass(time.Second)
	require.Equal(t, Aborted, p.s.Cause().How)
	require.True(t, p.s.Restartable())
}

// A rank that has heard of a loss calls Abort before the agent of the lost rank's host has reported its end.
func TestRestartableAfterALossThatOthersHaveSeen(t *testing.T) {
	p := playOn(t, 0, 1, 2).init()
	p.lines(1, "cmd=peer_lost peer=-1", "cmd=abort exitcode=1").pass(400 * time.Millisecond)
	require.Nil(t, p.s.Cause(), "how the lost rank has ended may become known")
	p.closed(2).killed(2, syscall.SIGKILL)
	p.cause(Killed, 2)
	require.True(t, p.s.Restartable())

	p = playOn(t, 0, 1, 2).init()
	p.lines(1, "cmd=peer_lost peer=-1", "cmd=abort exitcode=1").pass(time.Second)
	p.cause(Aborted, 1)
	require.True(t, p.s.Restartable())
}

func TestAJobThatGoesWellIsNotRestartable(t *testing.T) {
	p := play(t, 1).init()
	require.False(t, p.s.Restartable())
	p.lines(0, "cmd=finalize").closed(0).exits(0, 0).unwritten(0)
	require.True(t, p.s.Over())
	require.False(t, p.s.Restartable())
}
