// Package ring provides circular queues: entry i lies at index i modulo the length, which is a power of two.
package ring

// Grow returns a ring of twice the length with the entries from head up to tail in their places.
func Grow[T any, I uint32 | uint64](ring []T, head, tail I) []T {
	bigger := make([]T, max(2, 2*len(ring)))
	for i := head; i != tail; i++ {
		bigger[i&I(len(bigger)-1)] = ring[i&I(len(ring)-1)]
	}
	return bigger
}

// Queue is a circular queue that grows. Its entries are those from Head up to Tail, modulo 2^32.
type Queue[T any] struct {
	Ring       []T
	Head, Tail uint32
}

// At returns a pointer to an entry.
func (q *Queue[T]) At(i uint32) *T { return &q.Ring[i&uint32(len(q.Ring)-1)] }

// Room returns a pointer to the entry after the last, which becomes one when the caller advances Tail.
func (q *Queue[T]) Room() *T {
	if int(q.Tail-q.Head) == len(q.Ring) {
		q.Ring = Grow(q.Ring, q.Head, q.Tail)
	}
	return q.At(q.Tail)
}

// Len returns the number of entries.
func (q *Queue[T]) Len() int { return int(q.Tail - q.Head) }
