package sys

// StoreBarrier makes later stores visible after earlier ones. This processor does that by itself.
func StoreBarrier() {}

// LoadBarrier makes later loads happen after earlier ones. This processor does that by itself.
func LoadBarrier() {}
