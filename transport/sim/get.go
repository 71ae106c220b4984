package sim

import "github.com/weft-mpi/weft/transport"

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
func (q *qp) Get(dst []byte, from *transport.Segment) bool {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.state != transport.StateReady || q.reads == 0 || q.cut || q.pending != nil ||
		q.peer.state != transport.StateReady || q.peer.pending != nil ||
		len(dst) == 0 || uint64(len(dst)) != from.Length || q.rng.IntN(4) == 0 {
		return false
	}
	if q.unsettled() && q.net.mutant != getAhead {
		return false
	}
	parts, err := q.peer.source([]transport.Segment{*from}, 0, len(dst))
	if err != nil {
		return false
	}
	for _, p := range parts {
		dst = dst[copy(dst, p):]
	}
	return true
}
