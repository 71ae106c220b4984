package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/weft-mpi/weft/transport"
)

// A provider embeds these types for the optional parts of a queue pair or an endpoint that it lacks.

// NoInlineWriter is a queue pair whose Writes are all posted.
type NoInlineWriter struct{}

// WriteInline writes nothing.
func (NoInlineWriter) WriteInline(*transport.Segment, []byte, []byte, uint64) bool { return false }

// PrefetchAddr returns 0.
func (NoInlineWriter) PrefetchAddr(uint64) uintptr { return 0 }

// NoDirectCopier is a queue pair whose Reads and Writes are all posted.
type NoDirectCopier struct{}

// Get reads nothing.
func (NoDirectCopier) Get([]byte, *transport.Segment) error { return errors.ErrUnsupported }

// Put writes nothing.
func (NoDirectCopier) Put([]byte, *transport.Segment) error { return errors.ErrUnsupported }

// Fill writes nothing.
func (NoDirectCopier) Fill(*transport.Segment, transport.Filler) error { return errors.ErrUnsupported }

// NoQPPoller is a queue pair that is driven with all others of its completion queue.
type NoQPPoller struct{}

// PollQP does nothing.
func (NoQPPoller) PollQP() (polled, came bool) { return false, false }

// NoLanes is a queue pair with one connection.
type NoLanes struct{}

// Lanes returns zeros.
func (NoLanes) Lanes() transport.LaneStats { return transport.LaneStats{} }

// OpenLanes appends nothing.
func (NoLanes) OpenLanes(to []transport.LaneAttr) []transport.LaneAttr { return to }

// NoReadCounter is a queue pair that does not count the peer's Reads.
type NoReadCounter struct{}

// ReadsAnswered returns zeros.
func (NoReadCounter) ReadsAnswered() transport.ReadStats { return transport.ReadStats{} }

// ReachesAll is an endpoint that may reach every address of its provider.
type ReachesAll struct{}

// Reaches returns true.
func (ReachesAll) Reaches(string) bool { return true }

// NoTransferrer is an endpoint that cannot transfer a stream of the application.
type NoTransferrer struct{}

// Transfer closes the stream.
func (NoTransferrer) Transfer(_ context.Context, conn net.Conn, _ []byte, _ transport.Role,
	rank uint32) error {
	conn.Close()
	return fmt.Errorf("transfer of a stream to rank %d: this provider does not support it: %w", rank,
		errors.ErrUnsupported)
}
