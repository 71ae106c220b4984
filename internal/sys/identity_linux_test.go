package sys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// identityOf is the identity that a child has for itself.
func identityOf(t *testing.T, pid int) string {
	stat, ok := readStat(fmt.Sprintf("/proc/%d/stat", pid))
	require.True(t, ok)
	_, rest, _ := strings.Cut(Identity(), ".")
	_, space, _ := strings.Cut(rest, ".")
	return fmt.Sprintf("%d.%s.%s", pid, stat.Began, space)
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
	becomes := func(w *Watch, want bool) {
		t.Helper()
		require.Eventually(t, func() bool { return w.Runs() == want }, 2*time.Minute, time.Millisecond)
	}
	busy := begin(t, "/bin/sh", "-c", "while :; do :; done")
	watch := NewWatch(identityOf(t, busy))
	becomes(watch, true)
	for range 10 {
		require.True(t, NewWatch(identityOf(t, busy)).Runs())
	}
	require.NoError(t, syscall.Kill(busy, syscall.SIGSTOP))
	becomes(watch, false)
	require.NoError(t, syscall.Kill(busy, syscall.SIGCONT))
	becomes(watch, true)
	require.NoError(t, Kill(busy))
	becomes(watch, false)

	becomes(NewWatch(identityOf(t, begin(t, "/bin/sleep", "60"))), false)
}

func TestRuns_OnlyTheProcessThatIsMeant(t *testing.T) {
	own := Identity()
	require.True(t, NewWatch(own).Runs(), "the thread that asks runs")
	pid := fmt.Sprint(os.Getpid())
	for _, other := range []string{"", ".", pid, own + "1", "1" + own, strings.Replace(own, ".", ".1", 1), "../" + own} {
		require.False(t, NewWatch(other).Runs(), other)
	}
}

// A process whose threads hand a goroutine to each other, so that each is found asleep, runs if they have had a
// processor, or waited for one, for most of the time; a single thread that wakes now and then does not count.
func TestRuns_ThreadsFoundAsleep(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	const asleep = "1 (a) b) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 2 0 12345 0"
	write("stat", asleep)
	write("task/1/stat", asleep)
	write("task/2/stat", asleep)
	w := &Watch{folder: folder, began: "12345"}
	after := func(wanted1, wanted2 time.Duration) bool {
		write("task/1/schedstat", fmt.Sprintf("%d 0 1\n", wanted1))
		write("task/2/schedstat", fmt.Sprintf("0 %d 1\n", wanted2))
		return w.Runs()
	}
	require.False(t, after(time.Hour, time.Hour), "it may have been long ago")
	w.looked = w.looked.Add(-time.Second) // the processor was had since then
	require.True(t, after(time.Hour+time.Hour/2, time.Hour+time.Hour/2))
	w.looked = w.looked.Add(-time.Hour)
	require.False(t, after(time.Hour+time.Hour/2+time.Minute, time.Hour+time.Hour/2))
	w.looked = w.looked.Add(-time.Second)
	w.began = "12346"
	require.False(t, after(5*time.Hour, 5*time.Hour), "it is another process")
}
