//go:build !amd64

package sys

// Ticks is not known on this processor: its clock is read as fast.
func Ticks() int64 { return 0 }

// SteadyTicks reports whether Ticks counts at one speed, and the same on all cores.
func SteadyTicks() bool { return false }
