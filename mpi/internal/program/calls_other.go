//go:build !(amd64 || arm64)

package program

const minFunction = 1

func calls(segment, func(returns, callee uintptr) bool) {}
