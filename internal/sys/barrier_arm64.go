package sys

// StoreBarrier has what the program stores from now on be seen after what it has stored before.
func StoreBarrier()

// FullBarrier has what the program loads from now on be loaded after what it has stored before is seen.
func FullBarrier()

// LoadBarrier has what the program loads from now on be loaded after what it has loaded before.
func LoadBarrier()
