package verbs

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
)

// CompletionRing holds the unpolled completions of a queue. It grows on demand, up to the depth of the queue.
type CompletionRing struct {
	ring       []transport.WC // power of two in length
	head, tail uint32         // next to poll, next to fill
	depth      int
	overrun    bool
}

// NewCompletionRing makes the ring of a queue with this depth.
func NewCompletionRing(depth int) CompletionRing {
	return CompletionRing{ring: make([]transport.WC, 16), depth: depth}
}

// Put adds a completion; false if there is no room for it.
func (r *CompletionRing) Put(wc *transport.WC) bool {
	n := int(r.tail - r.head)
	if n == r.depth {
		return false
	}
	if n == len(r.ring) {
		r.ring = ring.Grow(r.ring, r.head, r.tail)
	}
	r.ring[r.tail&uint32(len(r.ring)-1)] = *wc
	r.tail++
	return true
}

// Take removes completions, oldest first, and returns how many.
func (r *CompletionRing) Take(wc []transport.WC) int {
	n := 0
	for n < len(wc) && r.head != r.tail {
		i := r.head & uint32(len(r.ring)-1)
		wc[n] = r.ring[i]
		r.ring[i].Err = nil
		r.head++
		n++
	}
	return n
}

// Forget drops the completions of a queue pair.
func (r *CompletionRing) Forget(num transport.QPN) {
	kept := r.head
	for i := r.head; i != r.tail; i++ {
		if wc := r.ring[i&uint32(len(r.ring)-1)]; wc.QP != num {
			r.ring[kept&uint32(len(r.ring)-1)] = wc
			kept++
		}
	}
	r.tail = kept
}

// Overrun notes that a completion found no room. The first call returns the error with which every queue pair
// of the queue ends; later ones return nil.
func (r *CompletionRing) Overrun() error {
	if r.overrun {
		return nil
	}
	r.overrun = true
	return r.Err()
}

// Err returns the error of a queue that has been overrun, which accepts no more queue pairs; otherwise nil.
func (r *CompletionRing) Err() error {
	if !r.overrun {
		return nil
	}
	return fmt.Errorf("%w: more than %d unpolled completions", transport.ErrOverrun, r.depth)
}
