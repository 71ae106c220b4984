//go:build !amd64 && !arm64

package sys

// StoreBarrier has what the program stores from now on be seen after what it has stored before.
func StoreBarrier() { FullBarrier() }
