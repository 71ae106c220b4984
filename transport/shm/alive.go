package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// MinPeerTimeout is the shortest Options.PeerTimeout: a process may have to wait so long for a processor.
const MinPeerTimeout = 100 * time.Millisecond

// errSilent marks the loss of a peer that is there and does nothing.
var errSilent = errors.New("silent")

func (d *Device) tickPeriod() time.Duration { return d.opts.PeerTimeout / ticksSilent }

// Tick tells peers that this end lives, and ends the connections of those that do not.
func (c *cq) Tick(now time.Time) {
	due, counts := c.clock.tick(now)
	if !due {
		return
	}
	for i := 0; i < len(c.qps); {
		q := c.qps[i]
		if q.rcq == c {
			q.tick(counts)
		}
		i += c.still(i, q)
	}
}

func (q *qp) tick(counts bool) {
	q.restage()
	sys.StoreRelease(&q.out.beat, q.out.beat+1)
	if b := atomic.LoadUint64(&q.in.beat); b != q.beat {
		q.beat = b
		q.pulse.heard = true
	}
	if _, lost := q.pulse.tick(counts); lost {
		q.fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, errSilent, q.dev.opts.PeerTimeout), transport.StatusFatal)
	}
}
