package sys

// StoreRelease stores a word after everything that the program has stored before. This processor does that with any store.
func StoreRelease(p *uint64, v uint64) { *p = v }

// StoreBarrier has what the program stores from now on be seen after what it has stored before. This processor does that by itself.
func StoreBarrier() {}
