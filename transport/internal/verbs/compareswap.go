package verbs

import "sync/atomic"

// CompareSwap carries out an Atomic of that name. It gives the word as it was; the word was replaced if that
// is compare.
func CompareSwap(at *uint64, compare, operand uint64) uint64 {
	for {
		if old := atomic.LoadUint64(at); old != compare {
			return old
		}
		if atomic.CompareAndSwapUint64(at, compare, operand) {
			return compare
		}
	}
}
