package sys

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// maxCPU bounds the processor numbers that affinity masks are read and written for.
const maxCPU = 1 << 13

// Affinity lists the processors that the calling thread may run on, in ascending order.
func Affinity() ([]int, error) {
	set := unix.NewCPUSet(maxCPU)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cpus []int
	for cpu := range maxCPU {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// SetAffinity keeps the calling thread, which must be locked to its goroutine, and what it starts from now on
// to these processors.
func SetAffinity(cpus []int) error {
	set := unix.NewCPUSet(maxCPU)
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return fmt.Errorf("sched_setaffinity %v: %w", cpus, err)
	}
	return nil
}

// SetTimerSlack lets the timers of the calling thread, which must be locked to its goroutine, and of the
// processes that it starts from now on, be late by so much (the system's default is 50 µs).
func SetTimerSlack(d time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
}
