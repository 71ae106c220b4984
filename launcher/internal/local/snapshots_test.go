package local

import (
	"os"
	"syscall"
	"testing"
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

// A rank that reads nothing is not waited for, and gets what comes when it reads again.
func TestAsk_DoesNotWait(t *testing.T) {
	p, rank := questions(t)
	for !p.say([]byte{snapshot.AskSample}) {
	}
	p.ask(snapshot.AskSample)
	p.tellFailed(3)
	b := make([]byte, 1<<20)
	for {
		if _, err := syscall.Read(rank, b); err != nil {
			require.ErrorIs(t, err, syscall.EAGAIN)
			break
		}
	}
	p.ask(snapshot.Ask)
	n, err := syscall.Read(rank, b)
	require.NoError(t, err)
	require.Equal(t, []byte{snapshot.Ask}, b[:n])
	p.snapshots.Close()
	p.ask(snapshot.Ask)
	p.tellFailed(3)
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
