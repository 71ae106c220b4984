//go:build !arm64

package sys

import "sync/atomic"

// FullBarrier has what the program loads from now on be loaded after what it has stored before is seen.
func FullBarrier() {
	var word uint64
	atomic.AddUint64(&word, 1)
}
