package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	barrierExpedited    = 1 << 1
	barrierRegister     = 1 << 2
	ownBarrierExpedited = 1 << 3
	ownBarrierRegister  = 1 << 4
)

// JoinBarrier has this process take part in the Barriers of other processes; false if the system has none. The first time it blocks for some 10 ms.
func JoinBarrier() bool { return register(barrierRegister) }

// Barrier has every thread of the processes that have joined, which runs at the moment, pass a full memory barrier. So who calls it after a
// store, and then loads, needs no barrier on the other side, between a store there and a load.
func Barrier() error { return membarrier(barrierExpedited) }

// JoinOwnBarrier makes OwnBarrier possible in this process; false if the system has none. The first time it blocks for some 10 ms.
func JoinOwnBarrier() bool { return register(ownBarrierRegister) }

// OwnBarrier is Barrier for the threads of this process alone.
func OwnBarrier() error { return membarrier(ownBarrierExpedited) }

func register(command uintptr) bool {
	_, _, e := syscall.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return e == 0
}

func membarrier(command uintptr) error {
	if _, _, e := syscall.RawSyscall(unix.SYS_MEMBARRIER, command, 0, 0); e != 0 {
		return e
	}
	return nil
}
