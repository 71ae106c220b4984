package shm

import (
	"github.com/weft-mpi/weft/transport"
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
