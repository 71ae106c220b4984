package shm

import (
	"github.com/weft-mpi/weft/transport"
)

// readResponse is a Read of the peer that this end answers, or an Atomic that it has carried out.
type readResponse struct {
	number   uint64
	atomic   bool
	original uint64 // of an Atomic: the previous value of the word
	total    int
	sent     int // of total
	src      [maxSegments]transport.Segment
	nsrc     int
	refused  error // why it is refused; sent in order, so that earlier Reads complete
}
