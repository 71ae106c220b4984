//go:build !amd64 || race

package sys

import "sync/atomic"

// StoreRelease stores a word after everything that the program has stored before.
func StoreRelease(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// StoreRelease32 is StoreRelease of a half word.
func StoreRelease32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }
