package shm

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// idle reports whether neither end has anything to do.
func (q *qp) idle() bool { return !q.busy && q.in.there() == 0 }

// receive consumes the frames in the ring. It reports whether there were any.
func (q *qp) receive() (came bool) {
	there := q.in.there()
	if there == 0 {
		return false
	}
	ended := there&tailEnded != 0
	end := q.in.head + there&^tailEnded
	for q.connected() && q.in.head != end {
		if err := q.recv.take(end - q.in.head); err != nil {
			q.ReceiveFailed(err)
			return true
		}
	}
	switch {
	case !q.connected():
	case ended:
		q.Fail(fmt.Errorf("%w: the connection ended", transport.ErrPeerLost), transport.StatusFatal)
	case q.in.settle():
		q.tell()
	}
	return true
}

// receiver carries out the peer's frames.
type receiver struct {
	q       *qp
	control [maxControl]byte // payload that must be contiguous
}

// take carries out the next frame; there is the number of bytes in the ring.
func (r *receiver) take(there uint64) error {
	q := r.q
	if there < headerSize || there > ringSize {
		return fmt.Errorf("%w: %d bytes in a ring of %d", transport.ErrProtocol, there, ringSize)
	}
	first := q.in.word()
	h := header{length: int(uint32(first)), op: frameOp(first >> 32), flags: uint8(first >> 40),
		a: q.in.word(), b: q.in.word()}
	inside := h.length // bytes of payload in the ring
	if h.flags&flagBounced != 0 {
		inside = wordSize
	}
	if h.op == 0 || h.op >= frameOps || inside > framePayload || uint64(frameSize(inside)) > there ||
		h.length > bouncePiece {
		return fmt.Errorf("%w: frame %d of %d bytes, with %d in the ring", transport.ErrProtocol, h.op,
			h.length, there)
	}
	if q.PeerEnd() && h.op != frameTerminate && h.op != frameReadData && h.op != frameReadDone &&
		h.op != frameAtomicDone {
		return fmt.Errorf("%w: %v after Close", transport.ErrProtocol, h.op)
	}
	var pieces [2][]byte
	if h.flags&flagBounced == 0 {
		pieces[0], pieces[1] = q.in.payload(h.length)
	} else {
		off, size := q.in.word(), uint64(len(q.peer.mem))
		if off > size || uint64(h.length) > size-off {
			return fmt.Errorf("%w: a payload at %d of the %d bytes of an arena", transport.ErrProtocol, off,
				size)
		}
		pieces[0], inside = q.peer.mem[off:][:h.length:h.length], 0
	}
	err := r.carry(h, pieces)
	if !q.connected() {
		return err
	}
	q.in.skip(inside)
	if h.flags&flagBounced != 0 && q.in.settle() {
		q.tell() // the bounce buffer's slot is free
	}
	return err
}

// carry carries out a frame.
func (r *receiver) carry(h header, pieces [2][]byte) error {
	q := r.q
	switch h.op {
	case frameWrite:
		return r.takeWrite(h, pieces)
	case frameSend:
		return r.takeSend(h, pieces)
	case frameImmediate:
		return q.PeerSendsImmediate(h.a, h.b, h.flags&flagSolicited != 0)
	case frameReadRequest, frameAtomic, frameTerminate:
		if h.length > len(r.control) {
			return fmt.Errorf("%w: %v of %d bytes", transport.ErrProtocol, h.op, h.length)
		}
		k := copy(r.control[:], pieces[0])
		copy(r.control[k:], pieces[1])
		switch payload := r.control[:h.length]; h.op {
		case frameReadRequest:
			return q.answer.asked(h, payload)
		case frameAtomic:
			return q.answer.askedAtomic(h, payload)
		default:
			q.terminated(h, payload)
		}
	case frameReadData:
		return q.reads.readData(h, pieces)
	case frameReadDone, frameAtomicDone:
		return q.reads.completeRead(h)
	case frameClose:
		q.PeerClosed()
		q.MaybeClosed()
	}
	return nil
}

// maxControl is the largest payload of a frame that must be contiguous.
const maxControl = maxSegments * segmentSize

// takeWrite places a part of a Write that the peer cannot place itself.
func (r *receiver) takeWrite(h header, pieces [2][]byte) error {
	q := r.q
	m, err := q.PD.Find(transport.Key(h.a), transport.RemoteWrite, h.b, uint64(h.length))
	if err != nil {
		return violation.ErrWrite(err)
	}
	placePieces(m.Mem[h.b:][:h.length], pieces)
	if h.flags&flagLast != 0 {
		q.ReportPlaced()
	}
	return nil
}

// placePieces is place.Bytes for a payload that the end of the ring may have cut in two.
func placePieces(dst []byte, p [2][]byte) {
	if len(p[1]) == 0 {
		place.Bytes(dst, p[0])
		return
	}
	var last [wordSize]byte // p[0] has at least wordSize bytes
	n, k := len(dst)-wordSize, 0
	if n < len(p[0]) {
		k = copy(last[:], p[0][n:])
	} else {
		copy(dst[len(p[0]):n], p[1])
	}
	copy(last[k:], p[1][max(0, n-len(p[0])):])
	copy(dst[:n], p[0])
	place.Bytes(dst[n:], last[:])
}

// takeSend places a part of a message.
func (r *receiver) takeSend(h header, pieces [2][]byte) error {
	q := r.q
	e, err := q.PeerSends(h.a, h.b, h.length)
	if err != nil {
		return err
	}
	for _, b := range pieces {
		if err := e.Place(q.Message.Placed, b); err != nil {
			return err
		}
		q.Message.Placed += len(b)
	}
	if h.flags&flagLast != 0 {
		q.CompleteMessage(transport.WC{Bytes: q.Message.Placed}, h.flags&flagSolicited != 0)
	}
	return nil
}
