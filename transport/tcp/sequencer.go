package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// sequencer sends the frames of a queue pair over its links, and delivers the peer's frames in order. A
// singleLink has one link, whose bytes are in order. A multiLane has several links, the lanes: it numbers the
// frames, and outlives the loss of a link.
type sequencer interface {
	// start is called when the queue pair is attached to its driver.
	start()

	// hasOutput reports whether there is something to send; transmit sends as much as the links accept.
	hasOutput() bool
	transmit()

	// given returns the index of the first request in the send queue that the peer cannot have completely.
	given() uint32

	// hasRoom reports whether a link accepts more.
	hasRoom() bool

	// drive makes one pass: it sends, then receives. It reports whether anything was received.
	drive() (came bool)

	// tick is called once a period of the device's clock.
	tick(ticks int, counts bool)

	// watch makes a queue's poller watch the links; unwatch ends that.
	watch(c *cq)
	unwatch(c *cq)

	// acknowledgeClose acknowledges the peer's Close at once, if the protocol has acknowledgements.
	acknowledgeClose()

	// sendTerminate sends the last frame of this side, if a link accepts it at once.
	sendTerminate(h frame.Header, text []byte)

	// refused records the status of the request whose frame the peer rejected.
	refused(status transport.Status)

	// close closes the links. Nothing is placed after it.
	close()

	// laneStats returns the statistics of the lanes.
	laneStats() transport.LaneStats

	// openLanes appends the open lanes.
	openLanes(to []transport.LaneAttr) []transport.LaneAttr
}
