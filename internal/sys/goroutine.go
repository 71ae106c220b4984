//go:build (race || assert) && (amd64 || arm64)

package sys

// Goroutine tells the calling goroutine from all others that live. It costs a few instructions, for builds
// that check who has which lock.
func Goroutine() uintptr
