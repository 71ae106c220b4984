package local

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

// A process that ends at once may have been handled to its end before its connection is watched. That is no
// failure to start it.
func TestWatch_OfAProcessThatHasEnded(t *testing.T) {
	cmd := exec.Command("true")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Wait() }) // only now: its id stays its own
	watcher, err := sys.NewWatcher()
	require.NoError(t, err)
	defer watcher.Close()
	snapshots, theirs, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, theirs.Close())
	a := &Agent{watcher: watcher, events: make(chan agent.Event, 1), closing: make(chan struct{})}
	p := &process{agent: a, id: 3, pid: cmd.Process.Pid, state: ended, pmi: -1, snapshots: snapshots,
		silent: make(chan struct{})}
	s := spawner{agent: a}
	require.Nil(t, s.watch(p, &agent.Rank{ID: 3}))
	<-p.silent
	a.tasks.Wait()
}

// A process may be stopped before the agent knows it; it is said to be stopped all the same, after its start.
func TestBegun_TellsOfAProcessThatHasStoppedBefore(t *testing.T) {
	cmd := exec.Command("sh", "-c", "kill -STOP $$")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	pid := cmd.Process.Pid
	for stat := []byte(nil); !bytes.Contains(stat, []byte(") T ")); time.Sleep(time.Millisecond) {
		var err error
		stat, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
	}
	a := &Agent{events: make(chan agent.Event, 2), closing: make(chan struct{})}
	p := &process{agent: a, id: 3}
	require.Zero(t, p.reportChange(), "the kernel's signal has come, and the process is not known")
	p.begun(pid)
	require.Equal(t, agent.Started{Rank: 3, PID: pid}, <-a.events)
	require.Len(t, a.events, 1)
	require.Equal(t, agent.Stopped{Rank: 3, Signal: syscall.SIGSTOP}, <-a.events)
}
