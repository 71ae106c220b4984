// Package copycost is the model of how bytes move best between two processes of a host. There are two ways.
// Through memory that both have mapped a byte is copied twice, and its line goes from core to core in
// between. By a system call that reads the other process's memory it is copied once, but the call takes time
// before its first byte: 0.5 µs on one processor and 2.3 µs on another. So that time is measured, where ranks
// connect, and everything that depends on it follows from it here.
package copycost

import "time"

// DefaultCall is the duration of a call before its first byte if it was not measured: that of an AMD EPYC
// (family 26) in a virtual machine.
const DefaultCall = 2300 * time.Nanosecond

const (
	// mapped is how much longer 1 KiB takes through mapped memory than by a call that has begun. It is the
	// same, within a tenth, on processors whose calls differ by a factor of four: both ways are bound by the
	// lines' way between caches.
	mapped = 140 * time.Nanosecond
	// announced is how much longer an announced message takes, besides the call, than one that comes through
	// mapped memory: its sender's wait, and the look-up of its key.
	announced = 300 * time.Nanosecond
)

// Awaited returns the message length from which a waiting receiver should read the message directly.
func Awaited(call time.Duration) int { return kib(orDefault(call) + announced) }

// Staged returns the number of bytes up to which the owner of memory should copy it to memory that the other
// process has mapped, while that process waits.
func Staged(call time.Duration) int { return kib(orDefault(call)) }

// StagedByBoth is Staged if both processes do so at the same time, so that neither waits longer.
func StagedByBoth(call time.Duration) int { return 2 * kib(orDefault(call)) }

// kib returns the number of bytes that take this much longer through mapped memory.
func kib(t time.Duration) int { return int(t * 1024 / mapped) }

func orDefault(call time.Duration) time.Duration {
	if call <= 0 {
		return DefaultCall
	}
	return call
}
