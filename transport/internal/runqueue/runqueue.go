// Package runqueue decides which completion queue a completion handler's thread serves next (N7). It does no
// I/O and has no clock.
package runqueue

import "github.com/weft-mpi/weft/transport"

// Queue holds what waits for a turn. Each class is first come, first served. The low-latency class goes
// first, but at most transport.BulkAfter of its turns go in a row while bulk waits.
type Queue[T comparable] struct {
	waiting [transport.Bulk + 1][]T
	ahead   int // turns of the low-latency class in a row while bulk waited
}

// Add queues x, unless it is queued already.
func (o *Queue[T]) Add(c transport.Class, x T) {
	for _, have := range o.waiting[c] {
		if have == x {
			return
		}
	}
	o.waiting[c] = append(o.waiting[c], x)
}

// Next removes and returns the next in turn; false if there is none.
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

// take removes and returns the first of a class. The list keeps its memory.
func (o *Queue[T]) take(c transport.Class) T {
	list := o.waiting[c]
	x := list[0]
	o.waiting[c] = list[:copy(list, list[1:])]
	return x
}

// OnlyBulk reports whether only bulk queues are known to be ready. The thread then polls for low-latency ones
// before it serves them.
func (o *Queue[T]) OnlyBulk() bool {
	return len(o.waiting[transport.LowLatency]) == 0 && len(o.waiting[transport.Bulk]) > 0
}
