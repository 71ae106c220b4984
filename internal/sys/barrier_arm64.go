package sys

// StoreBarrier makes later stores visible after earlier ones.
func StoreBarrier()

// FullBarrier makes later loads happen after earlier stores are visible.
func FullBarrier()

// LoadBarrier makes later loads happen after earlier ones.
func LoadBarrier()
