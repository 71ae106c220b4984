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
func TestWatcherTellsTheOrderOfEnds(t *testing.T) {
	r, err := NewWatcher()
	require.NoError(t, err)
	defer r.Close()
	var pids []int
	for range 20 {
		c := Child{Path: "/bin/sleep", Args: []string{"sleep", "60"}, Files: []uintptr{0, 1, 2},
			OwnGroup: true}
		pid, err := c.Start()
		require.NoError(t, err)
		require.NoError(t, r.WatchProcess(pid, pid))
		pids = append(pids, pid)
	}
	var order []int
	for i := range pids {
		pid := pids[(i*7)%len(pids)] // 7 and 20 have no common divisor: each comes once
		order = append(order, pid)
		require.NoError(t, SignalGroup(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool { return isZombie(pid) }, 2*2*time.Minute, time.Millisecond)
	}
	var seen []Watched
	for len(seen) < len(pids) {
		seen, err = r.Next(seen)
		require.NoError(t, err)
	}
	for i, w := range seen {
		require.Equal(t, Watched{order[i], WatchedProcess}, w)
	}
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

func TestWatcherCloseEndsNext(t *testing.T) {
	r, err := NewWatcher()
	require.NoError(t, err)
	result := make(chan error, 1)
	go func() { _, err := r.Next(nil); result <- err }()
	require.NoError(t, r.Close())
	require.Error(t, <-result)
}

// Close does not hold the lock while it waits for a Next that has seen a child end and now needs the lock.
func TestWatcherCloseWhileNextReports(t *testing.T) {
	r, err := NewWatcher()
	require.NoError(t, err)
	child := Child{Path: "/bin/true", Args: []string{"true"}, Files: []uintptr{0, 1, 2}}
	pid, err := child.Start()
	require.NoError(t, err)
	defer Reap(pid)
	require.NoError(t, r.WatchProcess(pid, pid))
	require.Eventually(t, func() bool { return isZombie(pid) }, 2*2*time.Minute, time.Millisecond)
	// Both queue for the lock, Close first. The pauses only give them time to arrive there.
	r.mu.Lock()
	closed, over := make(chan error, 1), make(chan struct{})
	go func() { closed <- r.Close() }()
	time.Sleep(20 * time.Millisecond)
	go func() { r.Next(nil); close(over) }()
	time.Sleep(20 * time.Millisecond)
	r.mu.Unlock()
	for _, c := range []func() bool{func() bool { <-closed; return true },
		func() bool { <-over; return true }} {
		done := make(chan bool, 1)
		go func() { done <- c() }()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatal("Close and Next wait for each other")
		}
	}
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
