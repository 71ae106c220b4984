package local

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// questions is a process and the rank's end of its connection for questions.
func questions(t *testing.T) (*process, int) {
	ours, theirs, err := sys.StreamPair()
	require.NoError(t, err)
	require.NoError(t, syscall.SetNonblock(ours, true))
	require.NoError(t, syscall.SetNonblock(theirs, true))
	p := &process{snapshots: os.NewFile(uintptr(ours), "snapshots")}
	t.Cleanup(func() {
		p.snapshots.Close()
		syscall.Close(theirs)
	})
	return p, theirs
}

// A question has no deadline: one that was over before the write would lose the question, and it is not asked
// again before it is answered.
func TestAsk_HasNoDeadline(t *testing.T) {
	p, rank := questions(t)
	p.ask(snapshot.AskSample)
	p.tellFailed(3)
	time.Sleep(20 * time.Millisecond)
	_, err := p.snapshots.Write([]byte{snapshot.Ask})
	require.NoError(t, err, "a deadline of the question is left")
	b := make([]byte, 100)
	n, err := syscall.Read(rank, b)
	require.NoError(t, err)
	wanted := append(snapshot.AppendFailed([]byte{snapshot.AskSample}, 3), snapshot.Ask)
	require.Equal(t, wanted, b[:n])
}

// fill writes until there is no room for more.
func (p *process) fill() {
	for !p.say([]byte{snapshot.AskSample}) {
	}
}

// drain reads all that is there.
func drain(t *testing.T, rank int) {
	b := make([]byte, 1<<20)
	for {
		if _, err := syscall.Read(rank, b); err != nil {
			require.ErrorIs(t, err, syscall.EAGAIN)
			return
		}
	}
}

// A rank that reads nothing is not waited for, and gets what comes when it reads again.
func TestAsk_DoesNotWait(t *testing.T) {
	p, rank := questions(t)
	p.fill()
	p.ask(snapshot.AskSample)
	drain(t, rank)
	p.ask(snapshot.Ask)
	b := make([]byte, 100)
	n, err := syscall.Read(rank, b)
	require.NoError(t, err)
	require.Equal(t, []byte{snapshot.Ask}, b[:n])
	p.snapshots.Close()
	p.ask(snapshot.Ask)
	p.tellFailed(3)
}

// The failure of another rank waits for room for a while, and the agent does not.
func TestFailed_WaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rank := questions(t)
		p.fill()
		begin := time.Now()
		p.tellFailed(3)
		require.Zero(t, time.Since(begin), "of the bubble's clock")
		drain(t, rank)
		time.Sleep(2 * time.Millisecond)
		b := make([]byte, 100)
		n, err := syscall.Read(rank, b)
		require.NoError(t, err)
		require.Equal(t, snapshot.AppendFailed(nil, 3), b[:n])
		p.fill()
		p.tellFailed(4)
		time.Sleep(time.Second)
		drain(t, rank)
		p.ask(snapshot.Ask)
		n, err = syscall.Read(rank, b)
		require.NoError(t, err)
		require.Equal(t, []byte{snapshot.Ask}, b[:n], "it was given up")
	})
}

// A rank that is started after another one has failed hears of it, too: nobody else would tell it.
func TestFailed_IsToldToWhoIsStartedLater(t *testing.T) {
	early, first := questions(t)
	late, second := questions(t)
	early.id, late.id = 0, 3
	a := &Agent{ranks: map[int]*process{}}
	a.add(early)
	a.Do(agent.Failed{Rank: 2})
	a.add(late)
	for _, rank := range []int{first, second} {
		b := make([]byte, 100)
		n, err := syscall.Read(rank, b)
		require.NoError(t, err)
		require.Equal(t, snapshot.AppendFailed(nil, 2), b[:n])
	}
}
