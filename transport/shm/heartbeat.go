package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
)

// heartbeat exchanges signs of life with the peer of a queue pair.
type heartbeat struct {
	q      *qp
	seen   uint64 // last seen value of the block's heartbeatSeq
	silent int    // counting ticks since it changed
}

// running reports whether the peer is known to run: it may only wait for a CPU.
func (h *heartbeat) running() bool {
	d := h.q.dev
	return d.opts.Running != nil && d.opts.Running(h.q.Attr.Peer)
}

// tick gives a sign of life, and ends the connection of a peer that has given none for too long.
func (h *heartbeat) tick(counts bool) {
	q := h.q
	// before the last look at heartbeatSeq: a peer that has run since then has incremented it
	running := h.silent > 0 && h.running()
	sys.StoreRelease(&q.out.heartbeatSeq, q.out.heartbeatSeq+1)
	switch b := atomic.LoadUint64(&q.in.heartbeatSeq); {
	case b != h.seen:
		h.seen, h.silent = b, 0
	case counts:
		h.silent++
	}
	if h.silent >= keepalive.MaxMissed && !running {
		q.Fail(fmt.Errorf("%w: %w for %v", transport.ErrPeerLost, queuepair.ErrSilent,
			q.dev.opts.PeerTimeout), transport.StatusFatal)
	}
}
