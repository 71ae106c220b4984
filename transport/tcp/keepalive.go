package tcp

import (
	"time"

	"github.com/weft-mpi/weft/transport/internal/keepalive"
)

// MinPeerTimeout is the shortest Options.PeerTimeout: a process may have to wait so long for a processor.
const MinPeerTimeout = 100 * time.Millisecond

// tickPeriod is that of the device. Over lanes it is shorter, since the loss of one of several is to be found
// before that of a peer.
func (d *Device) tickPeriod() time.Duration {
	if d.opts.keeps() {
		return d.opts.PeerTimeout / maxMissedOverLanes
	}
	return d.opts.PeerTimeout / keepalive.MaxMissed
}

// Tick tells peers that this end lives, and ends the connections of those that do not.
func (c *cq) Tick(now time.Time) {
	due, counts := c.clock.Tick(now)
	if !due {
		return
	}
	c.clock.Ticks++
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.rcq == c {
			q.sequencer.tick(c.clock.Ticks, counts)
		}
		i += c.stepIfPresent(i, q)
	}
}
