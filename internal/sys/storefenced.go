package sys

import "sync/atomic"

// StoreFenced stores a word, and makes later atomic loads happen after it is visible. atomic.StoreUint64 does
// too, but not under the race detector: on memory that Go has not allocated it is a release alone there.
func StoreFenced(p *uint64, v uint64) { atomic.SwapUint64(p, v) }
