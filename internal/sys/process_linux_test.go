package sys

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Children end one after the other; the reaper is asked only afterwards, and still knows the order.
func TestReaperTellsTheOrderOfEnds(t *testing.T) {
	r, err := NewReaper()
	require.NoError(t, err)
	defer r.Close()
	var pids []int
	for range 20 {
		c := Child{Path: "/bin/sleep", Args: []string{"sleep", "60"}, Files: []uintptr{0, 1, 2}, OwnGroup: true}
		pid, err := c.Start()
		require.NoError(t, err)
		require.NoError(t, r.Watch(pid))
		pids = append(pids, pid)
	}
	var order []int
	for i := range pids {
		pid := pids[(i*7)%len(pids)] // 7 and 20 have no common divisor: each comes once
		order = append(order, pid)
		require.NoError(t, SignalGroup(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool { return isZombie(pid) }, 20*time.Second, time.Millisecond)
	}
	var seen []int
	for len(seen) < len(pids) {
		seen, err = r.Next(seen)
		require.NoError(t, err)
	}
	require.Equal(t, order, seen)
	for _, pid := range pids {
		status, err := Reap(pid)
		require.NoError(t, err)
		require.Equal(t, syscall.SIGKILL, status.Signal())
	}
}

func isZombie(pid int) bool {
	var status [256]byte
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.Read(status[:])
	for i := n - 1; i > 0; i-- {
		if status[i] == ')' {
			return status[i+2] == 'Z'
		}
	}
	return false
}

func TestReaperCloseEndsNext(t *testing.T) {
	r, err := NewReaper()
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() { _, err := r.Next(nil); result <- err }()
	require.NoError(t, r.Close())
	require.Error(t, <-result)
}

func TestSignalGroupNeverReachesOneself(t *testing.T) {
	for _, group := range []int{-5, 0, 1} {
		require.Error(t, SignalGroup(group, 0))
	}
}

func TestSetAffinity(t *testing.T) {
	runtime.LockOSThread() // and not unlocked: the thread ends with the test
	all, err := Affinity()
	require.NoError(t, err)
	last := all[len(all)-1:]
	require.NoError(t, SetAffinity(last))
	got, err := Affinity()
	require.NoError(t, err)
	require.Equal(t, last, got)
	require.Error(t, SetAffinity(nil))
}
