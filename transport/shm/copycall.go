package shm

import (
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
)

// copyCall is the duration of a system call that copies a few bytes of a peer's memory. It is measured with
// the first peers that connect; the minimum counts.
type copyCall struct {
	peers uatomic.Int32
	ns    uatomic.Int64 // 0: not known
}

const measuredPeers = 3

// pin sets the duration instead of measuring it, unless call is 0.
func (c *copyCall) pin(call time.Duration) {
	if call > 0 {
		c.ns.Store(int64(call))
		c.peers.Store(measuredPeers)
	}
}

func (c *copyCall) measure(own *sys.Foreign) {
	if c.peers.Inc() > measuredPeers {
		return
	}
	call, err := own.TimeCall()
	for ns := int64(call); err == nil; {
		least := c.ns.Load()
		if least != 0 && least <= ns || c.ns.CompareAndSwap(least, ns) {
			return
		}
	}
}

func (c *copyCall) known() time.Duration { return time.Duration(c.ns.Load()) }

// isMeasured reports whether enough peers could be read to assume that every peer can. If one cannot, the
// first copy finds that out.
func (c *copyCall) isMeasured() bool { return c.ns.Load() > 0 && c.peers.Load() >= measuredPeers }
