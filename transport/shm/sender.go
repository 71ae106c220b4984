package shm

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// sender carries out the send queue. The reader has its Reads and Atomics.
type sender struct {
	q       *qp
	next    uint32 // of the send queue: what goes out next
	waiting int    // of the requests from next on: those that are not Reads
}

// requests carries out the send queue, in order.
func (s *sender) requests(budget *int) {
	q := s.q
	for s.next != q.SQ.Tail {
		w := q.SQ.At(s.next)
		if w.Flags&transport.FlagFence != 0 && w.Sent == 0 && q.reads.read != q.reads.began {
			return // earlier Reads first
		}
		ok := false
		switch w.Op {
		case transport.OpWrite, transport.OpWriteImm:
			ok = s.write(w)
		case transport.OpSend:
			ok = s.send(w)
		case transport.OpRead, transport.OpFetchAdd:
			ok = q.reads.ask(w, budget)
		}
		if !ok {
			return
		}
		if w.Op != transport.OpRead {
			s.waiting--
		}
		s.next++
	}
}

// refuse ends the QP because of a request that the peer's table does not allow.
func (q *qp) refuse(w *verbs.Request, err error) {
	w.Failed = transport.StatusRemoteAccess
	what := "Write"
	switch w.Op {
	case transport.OpRead:
		what = "Read"
	case transport.OpFetchAdd:
		what = "Atomic"
	}
	q.Fail(&violation.Error{Reason: violation.Own, Err: fmt.Errorf("%s: %w", what, err)},
		transport.StatusFlushed)
}

// write carries out a Write; false if it is not complete.
func (s *sender) write(w *verbs.Request) bool {
	q := s.q
	if w.Sent < w.Total {
		if !w.Alive() {
			q.RegionGone(w)
			return false
		}
		to := w.Remote[0]
		if !q.beginPlacing() {
			q.endPlacing()
			return false // the connection is about to end
		}
		t, err := q.peer.find(to.Key, transport.RemoteWrite, to.Offset, to.Length)
		switch {
		case err != nil || !t.shared:
		case !t.enter(to.Key, false):
			err = verbs.ErrKey(to.Key)
		default:
			placeAll(q.peer.mem[t.where+to.Offset:][:to.Length:to.Length], w)
			t.leave()
			w.Sent = w.Total
			if !q.fenced && q.key != to.Key && !t.counted {
				q.before = q.writeTarget
				q.writeTo(to.Key, &t)
			}
		}
		q.endPlacing()
		if err != nil {
			q.refuse(w, err)
			return false
		}
		if t.shared {
			q.tellPlaced()
		}
	}
	for w.Sent < w.Total {
		n, ok := q.out.piece(w.Total - w.Sent)
		if !ok {
			return false
		}
		if rest := w.Total - w.Sent - n; rest > 0 && rest < wordSize {
			n -= wordSize // the last bytes of a Write stay in one frame
		}
		h := header{length: n, op: frameWrite, a: uint64(w.Remote[0].Key), b: w.Remote[0].Offset +
			uint64(w.Sent)}
		if w.Sent+n == w.Total {
			h.flags = flagLast
		}
		s.frame(h, w)
	}
	if w.Op == transport.OpWriteImm {
		if q.out.full(0) {
			return false
		}
		q.out.begin(header{op: frameImmediate, flags: flagLast | solicited(w), a: w.Number, b: w.Imm})
	}
	w.Done = true
	return true
}

// placeAll copies a whole Write to the peer's memory.
func placeAll(dst []byte, w *verbs.Request) {
	if w.Flags&transport.FlagInline != 0 {
		place.Bytes(dst, w.Inline)
		return
	}
	if len(w.Local) == 1 {
		p := &w.Local[0]
		place.Bytes(dst, p.Region.Mem[p.Off:p.Off+p.Len])
		return
	}
	var last [wordSize]byte
	n := max(w.Total-wordSize, 0)
	gather(dst[:n], w, 0)
	gather(last[:w.Total-n], w, n)
	place.Bytes(dst[n:], last[:w.Total-n])
}

// gather copies bytes of a request's elements, from an offset on.
func gather(dst []byte, w *verbs.Request, off int) {
	for len(dst) > 0 {
		p, at, k := verbs.Span(w.Local, off, len(dst))
		copy(dst, p.Region.Mem[at:at+k])
		dst, off = dst[k:], off+k
	}
}

// frame writes a frame with the next bytes of a request into the ring.
func (s *sender) frame(h header, w *verbs.Request) {
	out := &s.q.out
	first, second := out.beginFrame(h)
	for _, b := range [2][]byte{first, second} {
		if w.Flags&transport.FlagInline != 0 {
			copy(b, w.Inline[w.Sent:])
		} else {
			gather(b, w, w.Sent)
		}
		w.Sent += len(b)
	}
	out.endFrame(h.length)
}

// send carries out a Send.
func (s *sender) send(w *verbs.Request) bool {
	q := s.q
	for w.Sent < w.Total || w.Total == 0 && w.Op == transport.OpSend {
		if !w.Alive() {
			q.RegionGone(w)
			return false
		}
		n, ok := q.out.piece(w.Total - w.Sent)
		if !ok {
			return false
		}
		h := header{length: n, op: frameSend, a: w.Number, b: uint64(w.Sent)}
		if w.Sent+n == w.Total {
			h.flags = flagLast | solicited(w)
		}
		s.frame(h, w)
		if w.Total == 0 {
			break
		}
	}
	w.Done = true
	return true
}

// solicited returns the flag of a frame whose Recv raises a solicited event.
func solicited(w *verbs.Request) uint8 {
	if w.Solicited() {
		return flagSolicited
	}
	return 0
}
