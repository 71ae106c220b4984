package tcp

import (
	"fmt"
	"math/bits"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameReadRequest requests that this end write its source segments into the sender's destination segments
// (R1).
type frameReadRequest struct{ ordinaryFrame }

// makeRead makes the frame of a Read, unless as many requests as allowed are outstanding.
func (q *qp) makeRead(o *frame.Batch, w *verbs.Request) frameMade {
	c := &q.at
	if q.asksEnough() {
		return mustWait
	}
	c.reads++
	c.next++
	if w.Total == 0 {
		return madeNothing // no bytes to request
	}
	q.readRequest(o, w)
	c.responseFirst = true
	return madeFrame
}

// asksEnough reports whether as many Reads and Atomics of ours are outstanding as were agreed on (R5).
func (q *qp) asksEnough() bool { return q.at.reads-q.read >= uint64(q.agreed.Reads) }

// readRequest makes the ReadRequest of a Read.
func (q *qp) readRequest(o *frame.Batch, w *verbs.Request) {
	n := (len(w.Remote) + len(w.Local)) * frame.SegmentSize
	b := o.Begin(frame.Header{Length: n, Op: frame.ReadRequest, Flags: frame.Last, A: w.Number,
		B: uint64(w.Lane)<<40 | uint64(len(w.Remote))<<32 | uint64(len(w.Local))}, n)
	for _, s := range w.Remote {
		frame.PutSegment(b, s)
		b = b[frame.SegmentSize:]
	}
	for _, p := range w.Local {
		frame.PutSegment(b, transport.Segment{Key: p.Key, Offset: uint64(p.Off), Length: uint64(p.Len)})
		b = b[frame.SegmentSize:]
	}
}

func (frameReadRequest) end(q *qp, i *incoming) error { return q.answer.add(parseReadRequest, i) }

func (frameReadRequest) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	return sequence.Request, stopNone, r.storeReadRequest(parseReadRequest, i)
}

// parseReadRequest parses a Read Request and checks everything that needs no region.
func parseReadRequest(h frame.Header, payload []byte) (readResponse, error) {
	lane, nsrc, ndst := h.B>>40, h.B>>32&(1<<8-1), h.B&(1<<32-1)
	if lane > uint64(transport.MaxLane) {
		return readResponse{}, fmt.Errorf("%w: a Read over lane %d, which is not possible",
			transport.ErrProtocol, lane)
	}
	if nsrc < 1 || nsrc > frame.MaxSegments || ndst < 1 || ndst > frame.MaxSegments ||
		len(payload) != int(nsrc+ndst)*frame.SegmentSize {
		return readResponse{}, fmt.Errorf("%w: a Read of %d into %d segments, %d bytes of them",
			transport.ErrProtocol, nsrc, ndst, len(payload))
	}
	a := readResponse{number: h.A, lane: transport.Lane(lane), nsrc: int(nsrc), ndst: int(ndst)}
	var near, far uint64
	for k := range a.nsrc {
		a.src[k] = frame.ParseSegment(payload)
		payload = payload[frame.SegmentSize:]
		// no region is so long; the error is reported with its key
		near += min(a.src[k].Length, maxMessage+1)
	}
	for k := range a.ndst {
		a.dst[k] = frame.ParseSegment(payload)
		payload = payload[frame.SegmentSize:]
		if a.dst[k].Length > maxMessage {
			return readResponse{}, fmt.Errorf("%w: a Read into a segment of %d bytes",
				transport.ErrProtocol, a.dst[k].Length)
		}
		if a.dst[k].Offset > frame.MaxOffset-maxMessage {
			return readResponse{}, fmt.Errorf("%w: a Read into a segment at %d, which is not possible",
				transport.ErrProtocol, a.dst[k].Offset)
		}
		far += a.dst[k].Length
	}
	if far != near && near <= maxMessage || far == 0 {
		return readResponse{}, fmt.Errorf("%w: a Read of %d bytes into %d", transport.ErrProtocol, near, far)
	}
	a.total = int(far)
	return a, nil
}

// storeReadRequest stores a Read Request or an Atomic of the peer in the queue of answers, where it waits
// until all earlier frames have arrived (releaseRequest). The frame's Ref, the number of the request among
// the Reads and Atomics of its sender, determines its place. The request is parsed first, so that an invalid
// one does not take a place.
func (r *laneReceiver) storeReadRequest(parse func(frame.Header, []byte) (readResponse, error),
	i *incoming) error {
	q := r.q
	ahead, depth := i.Ref-r.released, uint64(q.agreed.Reads)
	if ahead >= depth || uint64(q.answer.queue.Tail-q.answer.queue.Head)+ahead >= depth {
		return violation.ErrReads(q.agreed.Reads)
	}
	a, err := parse(i.Header, i.control)
	if err != nil {
		return err
	}
	if q.answer.queue.Ring == nil {
		// room for all outstanding requests, including stored ones
		q.answer.queue.Ring = make([]readResponse, 1<<bits.Len64(depth-1))
	}
	to := q.answer.queue.At(q.answer.queue.Tail + uint32(ahead))
	if to.stored {
		return fmt.Errorf("%w: a second Read or Atomic at position %d of its sequence", transport.ErrProtocol,
			i.Ref)
	}
	a.stored = true
	*to = a
	return nil
}

// releaseRequest adds the next stored request of the peer to the queue of answers: everything before it is
// placed.
func (r *laneReceiver) releaseRequest() error {
	a := r.q.answer.queue.At(r.q.answer.queue.Tail)
	if !a.stored {
		return fmt.Errorf("%w: a Read or an Atomic at the position of another one", transport.ErrProtocol)
	}
	a.stored = false
	r.released++
	return r.q.answer.start()
}
