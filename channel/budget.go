package channel

import "sync/atomic"

// Budget bounds the registered buffers of a rank's channels and collectives, in bytes (E10). The rings of
// a channel's first phase, at first and later, are always granted, and counted; requests beyond the bound are
// refused. A nil Budget has no bound. Goroutines may share it.
type Budget struct {
	limit int
	used  atomic.Int64
}

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

// Reserve counts a buffer of n bytes if it is within the bound, and reports whether it is.
func (b *Budget) Reserve(n int) bool { return b.reserve(n, false) }

func (b *Budget) reserve(n int, must bool) bool {
	if b == nil {
		return true
	}
	if used := b.used.Add(int64(n)); !must && used > int64(b.limit) {
		b.Release(n)
		return false
	}
	return true
}

// Release undoes Reserve.
func (b *Budget) Release(n int) {
	if b != nil {
		b.used.Add(-int64(n))
	}
}
