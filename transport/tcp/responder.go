package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// readResponse is a Read of the peer that this end answers, or an Atomic that it has carried out.
type readResponse struct {
	number   uint64
	lane     transport.Lane // for the answer, if that lane is open
	atomic   bool
	stored   bool   // over lanes: not yet released
	original uint64 // of an Atomic: the previous value of the word
	total    int
	src, dst [frame.MaxSegments]transport.Segment
	nsrc     int
	ndst     int
	refused  error // why it is refused; sent in order, so that earlier Reads complete
}

// responder answers the peer's Reads and Atomics.
type responder struct {
	q         *qp
	queue     ring.Queue[readResponse]
	answered  transport.ReadStats
	elsewhere bool // the next answer waits for another lane
}

// add queues the answer to a ReadRequest or an Atomic of the peer: the request is checked at once, and
// answered in order (R2, R5, R6).
func (r *responder) add(parse func(frame.Header, []byte) (readResponse, error), i *incoming) error {
	a, err := parse(i.Header, i.control)
	if err != nil {
		return err
	}
	// Answers before the cursor may have been received: the peer may have begun another request since.
	if most := r.q.agreed.Reads; r.queue.Tail-r.q.at.response >= uint32(most) {
		return violation.ErrReads(most)
	}
	*r.queue.Room() = a
	return r.start()
}

// start adds the request at Tail to the queue of answers. It checks what the request names, and
// carries out an Atomic, because everything before it is placed. A refusal is sent in order; after a refused
// request all are refused, because the connection ends before their turn.
func (r *responder) start() error {
	q := r.q
	a := r.queue.At(r.queue.Tail)
	if err := q.PeerAsks(a.number); err != nil {
		return err
	}
	if r.queue.Head != r.queue.Tail {
		a.refused = r.queue.At(r.queue.Tail - 1).refused
	}
	r.queue.Tail++
	if a.refused != nil {
		return nil
	}
	if a.atomic {
		a.original, a.refused = q.PeerAdds(a.src[0].Key, a.src[0].Offset, a.src[0].Length)
		return nil
	}
	for _, s := range a.src[:a.nsrc] {
		if _, err := q.PD.Find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
			a.refused = err
			return nil
		}
	}
	return nil
}

// frame makes the next frame of the answer to the peer's oldest Read: a Write into the segments that it named
// (R2, R3). The last of them carries the Read's number as its immediate data (R4).
func (r *responder) frame(o *frame.Batch) bool {
	q := r.q
	c := &q.at
	if c.response == r.queue.Tail || r.elsewhere {
		return false
	}
	a := r.queue.At(c.response)
	c.responseFirst = false
	if a.refused != nil {
		if o.Empty() { // earlier frames go out first
			q.Refuse(a.number, a.atomic, a.refused)
		}
		return false
	}
	if a.atomic {
		o.Begin(frame.Header{Op: frame.AtomicDone, Flags: frame.Last, A: a.number, B: a.original}, 0)
		c.response++
		return true
	}
	src, soff := verbs.SegmentAt(a.src[:a.nsrc], c.responseOff)
	dst, doff := verbs.SegmentAt(a.dst[:a.ndst], c.responseOff)
	n := int(min(src.Length-soff, dst.Length-doff, frame.MaxPayload))
	from, err := q.PD.Find(src.Key, transport.RemoteRead, src.Offset+soff, uint64(n))
	if err != nil {
		a.refused = err
		return r.frame(o)
	}
	copied := r.copies(from)
	if copied {
		n = min(n, frame.MaxCheckedResponse, o.MaxCopy())
	}
	if from.View != nil {
		var fits bool
		if n, fits = gathers(o, n); !fits {
			return false
		}
	}
	h := frame.Header{Length: n, Op: frame.ReadWrite, A: uint64(dst.Key), B: dst.Offset + doff}
	last := c.responseOff+n == a.total
	if last {
		h.Flags, h.B = frame.Last, frame.Placement(h.B, frame.ReadImmediate(a.number))
	}
	at := src.Offset + soff
	switch {
	case from.View != nil:
		from.View.Gather(int(at), o.Begin(h, n))
		copied = true
	case copied:
		copy(o.Begin(h, n), from.Mem[at:])
	default:
		o.Begin(h, 0)
		o.Direct(from.Mem[at:][:n])
	}
	if copied {
		r.answered.Copied += uint64(n)
	}
	if c.responseOff += n; last {
		c.response, c.responseOff = c.response+1, 0
	}
	return true
}

// copies reports whether a Read of a region must be copied: the checksum must match the bytes that are sent,
// and the owner may change the memory at any time.
func (r *responder) copies(from *verbs.Region) bool {
	return r.q.checked && from.View == nil && from.Rights&transport.Unchanging == 0
}

// ReadsAnswered counts the peer's Reads whose answers were sent, or over lanes acknowledged, and the bytes
// that were copied for them, including resends.
func (q *qp) ReadsAnswered() transport.ReadStats { return q.answer.answered }

// alive reports whether the memory of an answer, from an offset on, is still registered. If not, it ends the
// QP.
func (r *responder) alive(number uint32, at int) bool {
	a := r.queue.At(number)
	src, off := verbs.SegmentAt(a.src[:a.nsrc], at)
	_, err := r.q.PD.Find(src.Key, transport.RemoteRead, src.Offset+off, 0)
	if err != nil {
		r.q.Refuse(a.number, a.atomic, err)
	}
	return err == nil
}
