package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
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

// responseFrame makes the next frame of the answer to the peer's oldest Read: a Write into the segments that
// it named (R2, R3). The last of them carries the Read's number as its immediate data (R4).
func (q *qp) responseFrame(o *frame.Batch) bool {
	c := &q.at
	if c.response == q.responses.Tail || q.answerElsewhere {
		return false
	}
	a := q.responses.At(c.response)
	c.responseFirst = false
	if a.refused != nil {
		if o.Empty() { // earlier frames go out first
			q.refuseRead(a, a.refused)
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
	r, err := q.PD.Find(&q.Windows, src.Key, transport.RemoteRead, src.Offset+soff, uint64(n))
	if err != nil {
		a.refused = err
		return q.responseFrame(o)
	}
	copied := q.copies(r)
	if copied {
		n = min(n, frame.MaxCheckedResponse, o.MaxCopy())
	}
	if r.View != nil {
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
	case r.View != nil:
		r.View.Gather(int(at), o.Begin(h, n))
		copied = true
	case copied:
		copy(o.Begin(h, n), r.Mem[at:])
	default:
		o.Begin(h, 0)
		o.Direct(r.Mem[at:][:n])
	}
	if copied {
		q.answered.Copied += uint64(n)
	}
	if c.responseOff += n; last {
		c.response, c.responseOff = c.response+1, 0
	}
	return true
}

// copies reports whether a Read of a region must be copied: the checksum must match the bytes that are sent,
// and the owner may change the memory at any time.
func (q *qp) copies(r *verbs.Region) bool {
	return q.checked && r.View == nil && r.Rights&transport.Unchanging == 0
}

// ReadsAnswered counts the peer's Reads whose answers were sent, or over lanes acknowledged, and the bytes
// that were copied for them, including resends.
func (q *qp) ReadsAnswered() transport.ReadStats { return q.answered }

// responseAlive reports whether the memory of an answer, from an offset on, is still registered. If not, it
// ends the QP.
func (q *qp) responseAlive(number uint32, at int) bool {
	a := q.responses.At(number)
	src, off := verbs.SegmentAt(a.src[:a.nsrc], at)
	_, err := q.PD.Find(&q.Windows, src.Key, transport.RemoteRead, src.Offset+off, 0)
	if err != nil {
		q.refuseRead(a, err)
	}
	return err == nil
}

// frameReadWrite is a Write that answers one of our Reads. It never writes outside the destinations that the
// Read names (R6).
type frameReadWrite struct{}

// begin checks that the frame continues where the previous one ended, and that exactly the last one has the
// number of the Read.
func (frameReadWrite) begin(q *qp, i *incoming) error {
	w := q.reading()
	if w == nil || w.Op != transport.OpRead {
		return errNotAsked
	}
	p, at, n := verbs.Span(w.Local, w.Got, i.Length)
	offset, immediate := frame.SplitPlacement(i.B)
	if p == nil || n != i.Length || transport.Key(i.A) != p.Key || offset != uint64(at) {
		return notDue(i)
	}
	if w.Got+i.Length == w.Total != (i.Flags&frame.Last != 0) || !i.names(w, immediate) {
		return notItsEnd(i, w)
	}
	if !p.Alive() {
		return errDestinationGone
	}
	i.r, i.at = p.Region, at
	return nil
}

// end places the rest of the frame. The Read is complete with the last one (R4).
func (frameReadWrite) end(q *qp, i *incoming) error {
	w := q.reading()
	w.Got += i.Length
	err := i.placeHeld()
	if err == nil && w.Got == w.Total {
		q.readIsDone(w)
	}
	return err
}

// beginAhead checks that the frame goes into a destination of its Read.
func (frameReadWrite) beginAhead(r *laneReceiver, i *incoming) error {
	w, number := r.asking(i.Ref)
	if w == nil || w.Op != transport.OpRead {
		return errNotAsked
	}
	offset, immediate := frame.SplitPlacement(i.B)
	if !i.names(w, immediate) {
		return notItsEnd(i, w)
	}
	for k := range w.Local {
		p := &w.Local[k]
		if uint64(p.Key) != i.A || offset < uint64(p.Off) || offset-uint64(p.Off) > uint64(p.Len) ||
			i.Length > p.Len-int(offset-uint64(p.Off)) {
			continue
		}
		if !p.Alive() {
			return errDestinationGone
		}
		if w.Begun+i.Length > w.Total {
			break
		}
		w.Begun += i.Length
		i.asks, i.r, i.at = number, p.Region, int(offset)
		return nil
	}
	return notDue(i)
}

func (frameReadWrite) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	r.q.SQ.At(i.asks).Got += i.Length
	kind := sequence.Data
	if i.Flags&frame.Last != 0 {
		kind = sequence.Response
	}
	return kind, stopNone, i.placeHeld()
}

var (
	errNotAsked        = fmt.Errorf("%w: data of a Read that was not requested", transport.ErrProtocol)
	errDestinationGone = fmt.Errorf("%w: the destination of a Read was deregistered before it was complete",
		transport.ErrAccess)
)

func notDue(i *incoming) error {
	offset, _ := frame.SplitPlacement(i.B)
	return fmt.Errorf("%w: %d bytes of a Read for %#x at %d, which is not what is due",
		transport.ErrProtocol, i.Length, i.A, offset)
}

// names reports whether the immediate data of the present frame is right: the number of the Read in its last
// Write, otherwise zero.
func (i *incoming) names(w *verbs.Request, immediate uint64) bool {
	if i.Flags&frame.Last == 0 {
		return immediate == 0
	}
	return immediate == frame.ReadImmediate(w.Number)
}

func notItsEnd(i *incoming, w *verbs.Request) error {
	_, immediate := frame.SplitPlacement(i.B)
	return fmt.Errorf("%w: a Write of Read %d, flags %#x, immediate %d, which is not what is due",
		transport.ErrProtocol, w.Number, i.Flags, immediate)
}

// readIsDone completes our oldest Read or Atomic.
func (q *qp) readIsDone(w *verbs.Request) {
	w.Done = true
	q.read++
	q.Retire()
}

// reading returns our oldest Read or Atomic that is not done, or nil. Everything before it in the queue is
// done, so it is the head.
func (q *qp) reading() *verbs.Request {
	if q.SQ.Head == q.written.next || q.SQ.Head == q.SQ.Tail {
		return nil
	}
	if w := q.SQ.At(q.SQ.Head); w.Asks() && !w.Done {
		return w
	}
	return nil
}

// asking returns our outstanding Read or Atomic with a number, and its index in the queue.
func (r *laneReceiver) asking(number uint64) (*verbs.Request, uint32) {
	q := r.q
	for k := q.SQ.Head; k != q.at.next; k++ {
		if w := q.SQ.At(k); w.Asks() && w.Number == number && !w.Done {
			return w, k
		}
	}
	return nil, 0
}
