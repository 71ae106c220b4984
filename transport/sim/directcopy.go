package sim

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// unsettled reports whether a posted request has yet to change the peer's memory or keys.
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

// Get succeeds only while no request of this end with bytes is in flight, and then at random.
func (q *qp) Get(dst []byte, from *transport.Segment) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.reads == 0 {
		return fmt.Errorf("a Get, and no Reads were agreed for this queue pair: %w", transport.ErrAccess)
	}
	if err := q.mayCopy(len(dst), from, getAhead); err != nil {
		return err
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

// Put succeeds when a Get would.
func (q *qp) Put(src []byte, to *transport.Segment) error {
	return q.placeHere(len(src), to, func(mem []byte) { copy(mem, src) })
}

// Fill succeeds when a Get would.
func (q *qp) Fill(to *transport.Segment, from transport.Filler) error {
	return q.placeHere(int(to.Length), to, from.Fill)
}

// placeHere calls store to write n bytes to the peer's memory.
func (q *qp) placeHere(n int, to *transport.Segment, store func(mem []byte)) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if err := q.mayCopy(n, to, putAhead); err != nil {
		return err
	}
	region, err := q.peer.reach(*to, transport.RemoteWrite)
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	store(region.buf[to.Offset:][:n:n])
	q.peer.recvCQ().markPlaced(q.peer.num)
	q.peer.signal()
	return nil
}

// mayCopy checks a Get, Put or Fill of n bytes; the mutant lets it overtake earlier requests.
func (q *qp) mayCopy(n int, s *transport.Segment, ahead mutant) error {
	if q.net.costs != nil || q.state != transport.StateReady || q.cut || q.pending != nil ||
		q.peer.state != transport.StateReady || q.peer.pending != nil ||
		q.rng.IntN(4) == 0 {
		return transport.ErrNotNow
	}
	if n == 0 || uint64(n) != s.Length {
		return fmt.Errorf("%w: %d bytes of memory for a segment of %d", transport.ErrInvalid, n, s.Length)
	}
	if q.unsettled() && q.net.mutant != ahead || q.peer.dev.keys[s.Key] == nil {
		return transport.ErrNotNow
	}
	return nil
}
