// Package ring is the memory of queues that go round: entry i of a queue lies at i modulo the length, which
// is a power of two.
package ring

// Grow gives a larger ring, twice the length, with the entries from head up to tail where they belong in it.
func Grow[T any, I uint32 | uint64](ring []T, head, tail I) []T {
	bigger := make([]T, max(2, 2*len(ring)))
	for i := head; i != tail; i++ {
		bigger[i&I(len(bigger)-1)] = ring[i&I(len(ring)-1)]
	}
	return bigger
}
