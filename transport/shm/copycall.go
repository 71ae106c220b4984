package shm

import (
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
)

// copyCall is how long a system call takes that copies a few bytes of a peer's memory. It is measured with
// the first peers that connect, and the least counts.
type copyCall struct {
	peers uatomic.Int32
	ns    uatomic.Int64 // 0: not known
}

const measuredPeers = 3

// pin has nothing measured, unless call is 0.
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
