//go:build amd64 || arm64

package check

// stack stores the return addresses of the innermost calls, by Go's chain of frame pointers. It takes a tenth
// of the time of runtime.Callers. It is assembly so that the goroutine is not preempted in it, and its stack
// not moved.
//
//go:noescape
func stack(pcs *[depth]uintptr)
