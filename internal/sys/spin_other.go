//go:build !amd64

package sys

// AwaitLoads is for loops that look at memory until another core has written there. On this processor it does
// nothing.
func AwaitLoads() {}

// PrefetchWrite would have the cache line at an address fetched for a store. On this processor it does
// nothing.
func PrefetchWrite(address uintptr) {}
