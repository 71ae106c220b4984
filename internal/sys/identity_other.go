//go:build !linux

package sys

// Identity is not known on this system.
func Identity() string { return "" }

// Watch observes whether a process runs.
type Watch struct{}

// NewWatch watches nothing on this system.
func NewWatch(string) *Watch { return &Watch{} }

// Runs is not known on this system.
func (*Watch) Runs() bool { return false }
