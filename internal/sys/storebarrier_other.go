//go:build !amd64 && !arm64

package sys

// StoreBarrier has what the program stores from now on be seen after what it has stored before.
func StoreBarrier() { FullBarrier() }

// LoadBarrier has what the program loads from now on be loaded after what it has loaded before.
func LoadBarrier() { FullBarrier() }
