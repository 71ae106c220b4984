//go:build !arm64

package sys

import "sync/atomic"

// FullBarrier makes later loads happen after earlier stores are visible.
func FullBarrier() {
	var word uint64
	atomic.AddUint64(&word, 1)
}
