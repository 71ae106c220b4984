package sys

// AwaitLoads is for loops that look at memory until another core has written there: the next load begins when
// the last has ended. Without it the processor guesses many turns of the loop ahead, and has to throw all of
// them away when the line changes, at the very moment that counts. And it leaves the line alone for some 10
// ns, to who is about to write there.
func AwaitLoads()

// PrefetchWrite has the cache line at an address fetched for a store that most likely comes soon. It is a
// hint: any address will do, of nothing too. A processor that does not know PREFETCHW takes it for nothing.
func PrefetchWrite(address uintptr)
