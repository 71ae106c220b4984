package sim

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// unsettled tells whether what was posted has yet to change the peer's memory or keys.
func (q *qp) unsettled() bool {
	for _, w := range q.sq {
		if w.op != transport.OpWriteImm || w.length > 0 {
			return true
		}
	}
	for _, m := range q.peer.in {
		if m.kind != kindWriteImm || m.length > 0 {
			return true
		}
	}
	return false
}

// Get succeeds only while nothing of ours is under way that has bytes, and not even then every time.
func (q *qp) Get(dst []byte, from *transport.Segment) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.state != transport.StateReady || q.reads == 0 || q.cut || q.pending != nil ||
		q.peer.state != transport.StateReady || q.peer.pending != nil ||
		q.rng.IntN(4) == 0 {
		return transport.ErrNotNow
	}
	if len(dst) == 0 || uint64(len(dst)) != from.Length {
		return fmt.Errorf("%w: a Get of %d bytes into %d", transport.ErrInvalid, from.Length, len(dst))
	}
	if q.unsettled() && q.net.mutant != getAhead {
		return transport.ErrNotNow
	}
	if q.peer.dev.keys[from.Key] == nil {
		return transport.ErrNotNow
	}
	parts, err := q.peer.source([]transport.Segment{*from}, 0, len(dst))
	if err != nil {
		return err
	}
	for _, p := range parts {
		dst = dst[copy(dst, p):]
	}
	return nil
}
