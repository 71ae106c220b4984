package shm

import (
	"time"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// copyCall is what a system call takes that copies a peer's memory: before its first byte, and for each KiB.
// It is measured with the first peers that connect, thoroughly with the first; the minimum counts.
type copyCall struct {
	peers uatomic.Int32
	ns    uatomic.Int64 // 0: not known
	kib   uatomic.Int64 // 0: not known

	pinned transport.CopyCosts // instead of all of this, unless it is zero
}

const measuredPeers = 3

// pin sets the numbers instead of measuring them, unless they are zero.
func (c *copyCall) pin(costs transport.CopyCosts) {
	if c.pinned = costs; costs.Call > 0 {
		c.ns.Store(int64(costs.Call))
		c.peers.Store(measuredPeers)
	}
}

func (c *copyCall) measure(own *sys.Foreign) {
	nth, rounds := c.peers.Inc(), 1
	switch {
	case nth > measuredPeers:
		return
	case nth == 1:
		rounds = sys.TimedRounds
	}
	if call, each, err := own.TimeCall(rounds); err == nil {
		least(&c.ns, call)
		least(&c.kib, each)
	}
}

// least stores a duration that is less than all before; 0 is none.
func least(to *uatomic.Int64, t time.Duration) {
	for ns := int64(t); ns > 0; {
		before := to.Load()
		if before != 0 && before <= ns || to.CompareAndSwap(before, ns) {
			return
		}
	}
}

func (c *copyCall) known() transport.CopyCosts {
	if c.pinned.Call > 0 {
		return c.pinned
	}
	return transport.CopyCosts{Call: time.Duration(c.ns.Load()), CallKiB: time.Duration(c.kib.Load())}
}

// isMeasured reports whether enough peers could be read to assume that every peer can. If one cannot, the
// first copy finds that out.
func (c *copyCall) isMeasured() bool { return c.ns.Load() > 0 && c.peers.Load() >= measuredPeers }
