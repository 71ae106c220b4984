package sys

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// identityOf is the identity that a child has for itself.
func identityOf(t *testing.T, pid int) string {
	began, _, ok := processStat(fmt.Sprintf("/proc/%d/stat", pid))
	require.True(t, ok)
	_, rest, _ := strings.Cut(Identity(), ".")
	_, space, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("%d.%s.%s", pid, began, space)
}

func begin(t *testing.T, args ...string) (pid int) {
	c := Child{Path: args[0], Args: args, Files: []uintptr{0, 1, 2}, OwnGroup: true}
	pid, err := c.Start()
	require.NoError(t, err)
	t.Cleanup(func() {
		Kill(pid)
		Reap(pid)
	})
	return pid
}

// A process that computes runs, however little of a processor it gets; one that is stopped, sleeps or has
// ended does not.
func TestRuns(t *testing.T) {
	becomes := func(identity string, want bool) {
		t.Helper()
		require.Eventually(t, func() bool { return Runs(identity) == want }, time.Minute, time.Millisecond)
	}
	busy := begin(t, "/bin/sh", "-c", "while :; do :; done")
	identity := identityOf(t, busy)
	becomes(identity, true)
	for range 100 {
		require.True(t, Runs(identity))
	}
	require.NoError(t, syscall.Kill(busy, syscall.SIGSTOP))
	becomes(identity, false)
	require.NoError(t, syscall.Kill(busy, syscall.SIGCONT))
	becomes(identity, true)
	require.NoError(t, Kill(busy))
	becomes(identity, false)

	becomes(identityOf(t, begin(t, "/bin/sleep", "60")), false)
}

func TestRuns_OnlyTheProcessThatIsMeant(t *testing.T) {
	own := Identity()
	require.True(t, Runs(own), "the thread that asks runs")
	pid := fmt.Sprint(os.Getpid())
	for _, other := range []string{"", ".", pid, own + "1", "1" + own, strings.Replace(own, ".", ".1", 1), "../" + own} {
		require.False(t, Runs(other), other)
	}
}
