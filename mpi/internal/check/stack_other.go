//go:build !amd64 && !arm64

package check

import "runtime"

func stack(pcs *[depth]uintptr) { runtime.Callers(3, pcs[:]) }
