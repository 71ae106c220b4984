//go:build !amd64

package sys

import "sync/atomic"

// StoreRelease stores a word after everything that the program has stored before.
func StoreRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
