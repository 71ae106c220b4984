//go:build (race || assert) && (amd64 || arm64)

package sys

// Goroutine returns a value that identifies the calling goroutine among the live ones. It costs a few
// instructions, for builds that check who has which lock.
func Goroutine() uintptr
