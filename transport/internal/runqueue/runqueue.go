// Package runqueue decides which completion queue a completion handler's thread serves next (N7). It does no
// I/O and has no clock.
package runqueue

import "github.com/weft-mpi/weft/transport"

// Queue is who waits for a turn. In each class it is first come, first served; the low-latency class goes
// first, but of its turns at most transport.BulkAfter go in a row while bulk waits.
type Queue[T comparable] struct {
	waiting [transport.Bulk + 1][]T
	ahead   int // turns of the low-latency class in a row while bulk waited
}

// Add has x wait for a turn; nothing changes if it does already.
func (o *Queue[T]) Add(c transport.Class, x T) {
	for _, have := range o.waiting[c] {
		if have == x {
			return
		}
	}
	o.waiting[c] = append(o.waiting[c], x)
}

// Next is whose turn it is; false if nobody waits.
func (o *Queue[T]) Next() (x T, ok bool) {
	low, bulk := len(o.waiting[transport.LowLatency]), len(o.waiting[transport.Bulk])
	switch {
	case bulk == 0:
		o.ahead = 0
		if low == 0 {
			return x, false
		}
	case low == 0 || o.ahead == transport.BulkAfter:
		o.ahead = 0
		return o.take(transport.Bulk), true
	default:
		o.ahead++
	}
	return o.take(transport.LowLatency), true
}

// take is the first of a class. The list keeps its memory.
func (o *Queue[T]) take(c transport.Class) T {
	list := o.waiting[c]
	x := list[0]
	o.waiting[c] = list[:copy(list, list[1:])]
	return x
}

// OnlyBulk reports whether bulk is next because nobody else is known to wait: a reason to look again before
// its turn.
func (o *Queue[T]) OnlyBulk() bool {
	return len(o.waiting[transport.LowLatency]) == 0 && len(o.waiting[transport.Bulk]) > 0
}
