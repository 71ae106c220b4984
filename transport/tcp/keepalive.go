package tcp

import (
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
)

// MinPeerTimeout is the shortest Options.PeerTimeout.
const MinPeerTimeout = keepalive.MinTimeout

// tickPeriod returns the device's tick period. It is shorter with lanes, so that a lost lane is found before
// a lost peer.
func (d *Device) tickPeriod() time.Duration {
	if d.opts.reconnects() {
		return d.opts.PeerTimeout / maxMissedOverLanes
	}
	return d.opts.PeerTimeout / keepalive.MaxMissed
}

// peerRuns reports whether the peer is known to run, and the connection to be open, although nothing is
// received: then it waits for a CPU. It is called before the last read of the link, so that nothing that the
// peer sent meanwhile is missed.
func (c *conn) peerRuns() bool {
	o := &c.q.dev.opts
	return c.fd >= 0 && o.Running != nil && o.Running(c.q.Attr.Peer) && sys.Acknowledged(c.fd, o.PeerTimeout)
}

// Tick sends signs of life to peers, and ends the connections of silent ones.
func (c *cq) Tick(now time.Time) {
	due, counts := c.clock.Tick(now)
	if !due {
		return
	}
	c.ticks++
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.rcq == c {
			q.sequencer.tick(c.ticks, counts)
		}
		i += c.qps.Step(i, q)
	}
}
