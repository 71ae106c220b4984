package sys

// StoreBarrier has what the program stores from now on be seen after what it has stored before. This
// processor does that by itself.
func StoreBarrier() {}

// LoadBarrier has what the program loads from now on be loaded after what it has loaded before. This
// processor does that by itself.
func LoadBarrier() {}
