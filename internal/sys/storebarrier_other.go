//go:build !amd64 && !arm64

package sys

// StoreBarrier makes later stores visible after earlier ones.
func StoreBarrier() { FullBarrier() }

// LoadBarrier makes later loads happen after earlier ones.
func LoadBarrier() { FullBarrier() }
