package shm

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// responder answers the Reads and Atomics of the peer that the peer cannot carry out itself.
type responder struct {
	q         *qp
	responses ring.Queue[readResponse]
	maxReads  uint64 // outstanding at once
	answered  transport.ReadStats
}

// readResponse is a Read of the peer that this end answers, or an Atomic that it has carried out.
type readResponse struct {
	number   uint64
	atomic   bool
	original uint64 // of an Atomic: the previous value of the word
	total    int
	sent     int // of total
	src      [maxSegments]transport.Segment
	nsrc     int
	refused  error // why it is refused; sent in order, so that earlier Reads complete
}

// owes reports whether a request is still unanswered.
func (r *responder) owes() bool { return r.responses.Head != r.responses.Tail }

// asked handles a Read Request: it is checked at once, and answered in order.
func (r *responder) asked(h header, payload []byte) error {
	n := len(payload) / segmentSize
	if n < 1 || n > maxSegments || len(payload)%segmentSize != 0 {
		return fmt.Errorf("%w: a Read of %d bytes of segments", transport.ErrProtocol, len(payload))
	}
	a, err := r.newResponse(h.a)
	if err != nil || a.refused != nil {
		return err
	}
	for i := range n {
		s := segmentAt(payload[i*segmentSize:])
		if _, err := r.q.PD.Find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
			a.refused = err
			return nil
		}
		a.src[i] = s
		a.nsrc = i + 1
		a.total += int(s.Length)
	}
	if uint64(a.total) != h.b {
		return fmt.Errorf("%w: a Read of %d bytes that names %d", transport.ErrProtocol, h.b, a.total)
	}
	return nil
}

// segmentAt returns the segment at the beginning of b.
func segmentAt(b []byte) transport.Segment {
	return transport.Segment{Key: transport.Key(binary.NativeEndian.Uint64(b)),
		Offset: binary.NativeEndian.Uint64(b[8:]), Length: binary.NativeEndian.Uint64(b[16:])}
}

// askedAtomic carries out an Atomic of the peer at once: everything before it is placed. Its answer, or a
// refusal, is sent in order with those of the Reads.
func (r *responder) askedAtomic(h header, payload []byte) error {
	if len(payload) != segmentSize {
		return fmt.Errorf("%w: an Atomic of %d bytes", transport.ErrProtocol, len(payload))
	}
	a, err := r.newResponse(h.a)
	if err != nil {
		return err
	}
	a.atomic = true
	if a.refused != nil {
		return nil
	}
	s := segmentAt(payload) // its length is the operand
	a.original, a.refused = r.q.PeerAdds(s.Key, s.Offset, s.Length)
	return nil
}

// newResponse adds an entry for a Read or an Atomic of the peer. After a refused one all are refused, because
// the connection ends before their turn.
func (r *responder) newResponse(number uint64) (*readResponse, error) {
	n := r.responses.Tail - r.responses.Head
	if uint64(n) >= r.maxReads {
		return nil, violation.ErrReads(int(r.maxReads))
	}
	if err := r.q.PeerAsks(number); err != nil {
		return nil, err
	}
	a := r.responses.Room()
	r.responses.Tail++
	a.number, a.atomic, a.nsrc, a.total, a.sent, a.refused = number, false, 0, 0, 0, nil
	if n > 0 {
		a.refused = r.responses.At(r.responses.Tail - 2).refused
	}
	r.q.work()
	return a, nil
}

// responseFrames sends the answers to Reads and Atomics of the peer, in order.
func (r *responder) responseFrames() {
	q := r.q
	for r.responses.Head != r.responses.Tail {
		a := r.responses.At(r.responses.Head)
		switch {
		case a.refused != nil:
			q.Refuse(a.number, a.atomic, a.refused)
			return
		case a.atomic:
			if q.out.full(0) {
				return
			}
			q.out.begin(header{op: frameAtomicDone, flags: flagLast, a: a.number, b: a.original})
		case a.sent < a.total:
			s, off := verbs.SegmentAt(a.src[:a.nsrc], a.sent)
			n, ok := q.out.piece(int(s.Length - off))
			if !ok {
				return
			}
			m, err := q.PD.Find(s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
			if err != nil {
				a.refused = err
				continue
			}
			first, second := q.out.beginFrame(header{length: n, op: frameReadData, a: a.number})
			copy(second, m.Mem[s.Offset+off:][copy(first, m.Mem[s.Offset+off:]):])
			q.out.endFrame(n)
			a.sent += n
			r.answered.Bytes += uint64(n)
			r.answered.Copied += uint64(n)
			continue
		default:
			if q.out.full(0) {
				return
			}
			q.out.begin(header{op: frameReadDone, flags: flagLast, a: a.number, b: uint64(a.total)})
		}
		r.responses.Head++
	}
}
