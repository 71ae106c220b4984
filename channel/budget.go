package channel

// Budget bounds the registered buffers of a rank's channels, in bytes (E10). The rings with which a channel
// starts are always granted, and counted; requests beyond the bound are refused.
type Budget struct{ limit, used int }

// NewBudget makes a budget of limit bytes.
func NewBudget(limit int) *Budget { return &Budget{limit: limit} }

func (b *Budget) reserve(n int, must bool) bool {
	if b == nil {
		return true
	}
	if !must && b.used+n > b.limit {
		return false
	}
	b.used += n
	return true
}

func (b *Budget) release(n int) {
	if b != nil {
		b.used -= n
	}
}
