package sys

import (
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	barrierExpedited = 1 << 1
	barrierRegister  = 1 << 2
)

var joined atomic.Bool

// JoinBarrier makes this process take part in Barriers, including those of other processes; false if the
// system has none. The first call blocks for about 10 ms.
func JoinBarrier() bool {
	_, _, e := syscall.Syscall(unix.SYS_MEMBARRIER, barrierRegister, 0, 0)
	if e == 0 {
		joined.Store(true)
	}
	return e == 0
}

// Joined reports whether this process takes part in Barriers.
func Joined() bool { return joined.Load() }

// Barrier has every thread of the processes that have joined, which runs at the moment, pass a full memory
// barrier. So who calls it after a store, and then loads, needs no barrier on the other side, between a store
// there and a load.
func Barrier() error {
	_, _, e := syscall.RawSyscall(unix.SYS_MEMBARRIER, barrierExpedited, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
