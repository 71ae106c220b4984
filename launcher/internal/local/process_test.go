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

	"github.com/weft-mpi/weft/launcher/internal/agent"
)

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
