package program

import "strings"

// PanicStack returns the stack of a goroutine that panicked, taken by a deferred function, without the frames
// above the panic: they are those of the recovery and of the Go runtime.
func PanicStack(stack []byte) string {
	head, rest, _ := strings.Cut(string(stack), "\n")
	_, below, found := strings.Cut(rest, "\npanic(")
	if !found {
		return string(stack)
	}
	frames := strings.Split(below, "\n")[1:] // begins with the line of panic's own frame
	frames = frames[min(1, len(frames)):]
	for len(frames) > 2 && strings.HasPrefix(frames[0], "runtime.") {
		frames = frames[2:]
	}
	return head + "\n" + strings.Join(frames, "\n")
}
