package shm

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
)

// readResponse is a Read of the peer that is being answered, or an Atomic that has been carried out.
type readResponse struct {
	number   uint64
	atomic   bool
	original uint64 // of an Atomic: the word as it was
	total    int
	sent     int // of total
	src      [maxSegments]transport.Segment
	nsrc     int
	refused  error // what is wrong with it; said in its turn, so that earlier Reads complete
}

// responseQueue is a ring of them. The peer may have only so many outstanding: more is a violation.
type responseQueue struct {
	ring       []readResponse
	head, tail uint32
}

func (a *responseQueue) at(i uint32) *readResponse { return &a.ring[i&uint32(len(a.ring)-1)] }

func (a *responseQueue) push() *readResponse {
	if int(a.tail-a.head) == len(a.ring) {
		a.ring = ring.Grow(a.ring, a.head, a.tail)
	}
	a.tail++
	return a.at(a.tail - 1)
}
