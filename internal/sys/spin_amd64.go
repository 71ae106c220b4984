package sys

// AwaitLoads is for loops that poll memory until another core writes there: the next load begins when the
// last has ended. Without it the processor speculates many turns of the loop ahead, and must discard them all
// when the line changes, at the critical moment. It also leaves the line to a writer for about 10 ns.
func AwaitLoads()

// PrefetchWrite has the cache line at an address fetched for a store that most likely comes soon. It is a
// hint: any address will do, of nothing too. A processor that does not know PREFETCHW takes it for nothing.
func PrefetchWrite(address uintptr)
