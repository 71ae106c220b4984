package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// cursor is a position in the sequence of frames that a QP sends. Making a frame moves the cursor; if the
// socket does not accept the frame, restoring the previous cursor undoes it.
type cursor struct {
	greeted       bool   // Ready was made, or is the peer's to send
	ended         bool   // the Close frame is before the cursor
	next          uint32 // index of a request in the send queue
	off           int    // bytes of it that are before the cursor
	reads         uint64 // Reads and Atomics of ours that are before the cursor
	response      uint32 // index of an answer in the queue of answers
	responseOff   int    // bytes of it that are before the cursor
	responseFirst bool   // an answer goes before a request, for fairness
}

// hasFrames reports whether there may be a frame to send.
func (q *qp) hasFrames() bool {
	return !q.awaitingFirstFrame && (!q.at.greeted || q.at.next != q.SQ.Tail ||
		q.at.response != q.answer.queue.Tail || q.CloseDue() && !q.at.ended)
}

// frame makes the next frame, if one may be sent, and moves the cursor past it.
func (q *qp) frame(o *frame.Batch) bool {
	c := &q.at
	if q.awaitingFirstFrame {
		return false
	}
	made := false
	switch {
	case !c.greeted:
		o.Begin(frame.Header{Op: frame.Ready, Flags: frame.Last}, 0)
		c.greeted = true
		return true
	case c.responseFirst: // either may end the QP
		made = q.answer.frame(o) || q.open && q.requestFrame(o)
	default:
		made = q.requestFrame(o) || q.open && q.answer.frame(o)
	}
	return made || q.open && q.makeClose(o)
}

// requestFrame makes the next frame of the send queue.
func (q *qp) requestFrame(o *frame.Batch) bool {
	c := &q.at
	made := madeNothing
	for made == madeNothing && c.next != q.SQ.Tail {
		w := q.SQ.At(c.next)
		if w.Flags&transport.FlagFence != 0 && c.off == 0 && q.read != c.reads {
			return false // earlier Reads first
		}
		switch w.Op {
		case transport.OpWrite, transport.OpWriteImm:
			made = q.makeWrite(o, w)
		case transport.OpSend:
			made = q.makeSend(o, w)
		case transport.OpRead:
			made = q.makeRead(o, w)
		case transport.OpFetchAdd:
			made = q.makeAtomic(o, w)
		}
	}
	return made == madeFrame
}

// payload adds a frame with n bytes of a request from an offset on. If a region is gone it ends the QP.
func (q *qp) payload(o *frame.Batch, h frame.Header, w *verbs.Request, off, n int) bool {
	if w.Flags&transport.FlagInline != 0 {
		copy(o.Begin(h, n), w.Inline[off:off+n])
		return true
	}
	if !w.Alive() {
		if o.Empty() { // earlier frames go out first
			q.RegionGone(w)
		}
		return false
	}
	if n <= frame.MaxCopied || w.Viewed() {
		b := o.Begin(h, n)
		for len(b) > 0 {
			p, at, k := verbs.Span(w.Local, off, len(b))
			if v := p.Region.View; v != nil {
				v.Gather(at, b[:k])
			} else {
				copy(b, p.Region.Mem[at:at+k])
			}
			b, off = b[k:], off+k
		}
		return true
	}
	o.Begin(h, 0)
	for n > 0 {
		p, at, k := verbs.Span(w.Local, off, n)
		o.Direct(p.Region.Mem[at : at+k])
		n, off = n-k, off+k
	}
	return true
}

// onWritten notes that everything before a cursor was sent, or over lanes acknowledged. The peer may have
// answered some of it before, and its entries in the queue may have been used again.
func (q *qp) onWritten(now cursor) {
	first := q.written.next
	if int32(q.SQ.Head-first) > 0 {
		first = q.SQ.Head
	}
	for i := first; i != now.next; i++ {
		switch w := q.SQ.At(i); {
		case !w.Asks():
			w.Done = true
		case w.Total == 0:
			w.Done = true
			q.read++
		}
	}
	for ; q.answer.queue.Head != now.response; q.answer.queue.Head++ {
		q.answer.answered.Bytes += uint64(q.answer.queue.At(q.answer.queue.Head).total)
	}
	ended := now.ended && !q.written.ended
	q.written = now
	q.Retire()
	if ended {
		q.CloseSent()
	}
}
