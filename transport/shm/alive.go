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

// ticksSilent is how many ticks in a row have to find no beat of a peer since the one before, until it counts as lost. The silence began before the
// first of these spans, so it is at least so many periods long, and at most one more.
const ticksSilent = 4

// clock tells which ticks count.
type clock struct {
	period time.Duration
	last   time.Time
}

// tick tells whether a period has gone by, and whether it was one in which this end was running: if the tick is late by more than another
// period, the process may have been stopped, and so may its peers, together with it.
func (c *clock) tick(now time.Time) (due, counts bool) {
	since := now.Sub(c.last)
	if !c.last.IsZero() && since < c.period {
		return false, false
	}
	counts = !c.last.IsZero() && since <= 2*c.period
	c.last = now
	return true, counts
}

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
	switch b := atomic.LoadUint64(&q.in.beat); {
	case b != q.beat:
		q.beat, q.silent = b, 0
	case counts:
		q.silent++
	}
	if q.silent >= ticksSilent {
		q.fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, errSilent, q.dev.opts.PeerTimeout), transport.StatusFatal)
	}
}
