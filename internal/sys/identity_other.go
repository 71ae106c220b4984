//go:build !linux

package sys

// Identity is not known on this system.
func Identity() string { return "" }

// Runs is not known on this system.
func Runs(string) bool { return false }
