package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// sequencer carries the frames of a queue pair over its links, and brings those of the peer in their order.
// A singleLink has one link, and the order is that of its bytes. A multiLane has several links, the lanes,
// numbers the frames, and outlives the loss of a link.
type sequencer interface {
	// start is called when the driver has taken the queue pair in.
	start()

	// hasOutput reports whether there is something to send, transmit sends as much as the links take.
	hasOutput() bool
	transmit()

	// hasRoom reports whether a link takes more.
	hasRoom() bool

	// drive is one pass: out, then in. It reports whether anything came.
	drive() (came bool)

	// tick is called once a period of the device's clock.
	tick(ticks int, counts bool)

	// watch has a queue's poller look at the links; unwatch ends that.
	watch(c *cq)
	unwatch(c *cq)

	// acknowledgeClose tells the peer at once that its Close has come, if that is told at all.
	acknowledgeClose()

	// sendTerminate sends the last frame of this side, if a link takes it at once.
	sendTerminate(h frame.Header, text []byte)

	// refused notes how the request ends whose frame the peer has found to be wrong.
	refused(status transport.Status)

	// close closes the links. Nothing is placed after it.
	close()

	// laneStats is what has happened to the lanes so far.
	laneStats() transport.LaneStats

	// openLanes appends the lanes that there are.
	openLanes(to []transport.LaneAttr) []transport.LaneAttr
}
