package shm

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

const (
	// payload of an Atomic frame: key, offset, operand, what is compared with, of 8 bytes each
	atomicSize  = 32
	segmentSize = 24 // of the payload of a Read Request: key, offset, length
)

// ask carries out a Read or an Atomic: here, if all that it names can be reached from here, else it has the
// peer answer it. It tells whether what is posted after it may go on.
func (q *qp) ask(w *verbs.Request, budget *int) bool {
	if w.Asked || q.began-q.read >= q.maxReads {
		return false
	}
	if q.began == q.read && !q.out.done() { // what was posted before it comes first
		q.waits = true
		return false
	}
	if *budget <= 0 { // after the check above: only what a pass can carry out keeps from sleeping
		return false
	}
	if q.began != q.read {
		return q.request(w) // the peer answers earlier ones yet, and they complete in order
	}
	if !w.Alive() {
		return q.gone(w)
	}
	if w.Op != transport.OpRead {
		return q.atomicHere(w)
	}
	for w.Got < w.Total {
		if *budget <= 0 {
			return false
		}
		n, err := q.readHere(w, *budget)
		if err != nil {
			q.refuse(w, err)
			return false
		}
		if n == 0 { // the peer has to
			return q.request(w)
		}
		w.Got += n
		*budget -= n
	}
	if w.Total == 0 && len(w.Remote) > 0 {
		for _, s := range w.Remote {
			if _, err := q.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				q.refuse(w, err)
				return false
			}
		}
	}
	w.Done = true
	return true
}

// readHere copies the next bytes of a Read, at most so many, straight from the peer's memory. It gives 0 if
// that cannot be done.
func (q *qp) readHere(w *verbs.Request, limit int) (int, error) {
	if w.Got == 0 { // nothing is read of what is refused in part
		for _, s := range w.Remote {
			if _, err := q.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				return 0, err
			}
		}
	}
	s, off := verbs.SegmentAt(w.Remote, w.Got)
	p, at, n := verbs.Span(w.Local, w.Got, min(limit, int(s.Length-off)))
	t, err := q.find(s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
	if err != nil {
		return 0, err
	}
	err = q.copyHere(p.Region.Mem[at:at+n], &t, s.Offset+off)
	if !t.stands(s.Key) {
		return 0, fmt.Errorf("%w: the region of key %#x was deregistered while it was read",
			transport.ErrAccess, uint64(s.Key))
	}
	if err != nil {
		return 0, nil // the peer can
	}
	return n, nil
}

// request asks the peer for a Read, or what is left of it, or for an Atomic.
func (q *qp) request(w *verbs.Request) bool {
	if w.Op != transport.OpRead {
		return q.requestAtomic(w)
	}
	var list [maxSegments]transport.Segment
	n, skip := 0, uint64(w.Got)
	for _, s := range w.Remote {
		k := min(skip, s.Length)
		skip -= k
		if s.Length > k || w.Total == 0 {
			list[n] = transport.Segment{Key: s.Key, Offset: s.Offset + k, Length: s.Length - k}
			n++
		}
	}
	if q.full(n * segmentSize) {
		return false
	}
	q.out.begin(header{length: n * segmentSize, op: frameReadRequest, flags: flagLast, a: w.Number,
		b: uint64(w.Total - w.Got)})
	var b [maxSegments * segmentSize]byte
	for i, s := range list[:n] {
		binary.LittleEndian.PutUint64(b[i*segmentSize:], uint64(s.Key))
		binary.LittleEndian.PutUint64(b[i*segmentSize+8:], s.Offset)
		binary.LittleEndian.PutUint64(b[i*segmentSize+16:], s.Length)
	}
	q.out.put(b[:n*segmentSize])
	w.Asked = true
	q.began++
	return true
}

// atomicHere changes a word in memory that is mapped here; of other memory the peer does it.
func (q *qp) atomicHere(w *verbs.Request) bool {
	s := w.Remote[0]
	if !q.beginPlacing() {
		q.endPlacing()
		return false
	}
	t, err := q.find(s.Key, transport.RemoteAtomic, s.Offset, wordSize)
	if err == nil && t.shared && (t.where+s.Offset)%wordSize != 0 {
		err = place.ErrUnaligned(s.Key, s.Offset)
	}
	var original uint64
	switch {
	case err != nil || !t.shared:
	case !t.enter(s.Key, false):
		err = verbs.ErrKey(s.Key)
	default:
		original = place.Atomic((*uint64)(unsafe.Pointer(&q.peer.mem[t.where+s.Offset])), w.Op, w.Imm, w.Other)
		t.leave()
	}
	q.endPlacing()
	if err != nil {
		q.refuse(w, err)
		return false
	}
	if !t.shared {
		return q.request(w)
	}
	q.tellPlaced()
	place.Original(w, original)
	w.Done = true
	return true
}

// requestAtomic asks the peer to change a word.
func (q *qp) requestAtomic(w *verbs.Request) bool {
	if q.full(atomicSize) {
		return false
	}
	q.out.begin(header{length: atomicSize, op: frameAtomic, flags: flagLast, a: w.Number,
		b: place.Operation(w.Op)})
	for _, v := range [...]uint64{uint64(w.Remote[0].Key), w.Remote[0].Offset, w.Imm, w.Other} {
		q.out.word(v)
	}
	w.Asked = true
	q.began++
	return true
}

// asking is our oldest Read or Atomic that the peer answers. Everything before it in the queue is done, so it
// is the head.
func (q *qp) asking() *verbs.Request {
	if q.SQ.Head == q.SQ.Tail {
		return nil
	}
	if w := q.SQ.At(q.SQ.Head); w.Asked && !w.Done {
		return w
	}
	return nil
}

// readData takes n bytes of our oldest Read.
func (q *qp) readData(h header, pieces [2][]byte) error {
	w := q.asking()
	if w == nil || w.Op != transport.OpRead || w.Number != h.a || h.length > w.Total-w.Got {
		return fmt.Errorf("%w: data of Read %d, which is not what is due", transport.ErrProtocol, h.a)
	}
	if !w.Alive() {
		return fmt.Errorf("%w: the destination of a Read was deregistered before it was complete",
			transport.ErrAccess)
	}
	for _, b := range pieces {
		for len(b) > 0 {
			p, at, k := verbs.Span(w.Local, w.Got, len(b))
			copy(p.Region.Mem[at:at+k], b)
			b, w.Got = b[k:], w.Got+k
		}
	}
	return nil
}

// completeRead takes the end of our oldest Read or Atomic.
func (q *qp) completeRead(h header) error {
	w := q.asking()
	if w == nil || w.Number != h.a || (w.Op == transport.OpRead) != (h.op == frameReadDone) ||
		w.Op == transport.OpRead && w.Got != w.Total {
		return fmt.Errorf("%w: %v %d, which is not what is due", transport.ErrProtocol, h.op, h.a)
	}
	if w.Op != transport.OpRead {
		if !w.Alive() {
			return fmt.Errorf("%w: the destination of an Atomic was deregistered before it was complete",
				transport.ErrAccess)
		}
		place.Original(w, h.b)
	}
	w.Done = true
	q.read++
	q.retire()
	return nil
}

// asked takes a Read Request: it is checked at once, and answered in its turn.
func (q *qp) asked(h header, payload []byte) error {
	n := len(payload) / segmentSize
	if n < 1 || n > maxSegments || len(payload)%segmentSize != 0 {
		return fmt.Errorf("%w: a Read of %d bytes of segments", transport.ErrProtocol, len(payload))
	}
	a, err := q.newResponse(h.a)
	if err != nil || a.refused != nil {
		return err
	}
	for i := range n {
		b := payload[i*segmentSize:]
		s := transport.Segment{Key: transport.Key(binary.LittleEndian.Uint64(b)),
			Offset: binary.LittleEndian.Uint64(b[8:]),
			Length: binary.LittleEndian.Uint64(b[16:])}
		if _, err := q.PD.Find(&q.Windows, s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
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

// askedAtomic takes an Atomic of the peer and carries it out at once: what came before it is placed. The
// answer waits for its turn among those of the Reads, and so does a refusal.
func (q *qp) askedAtomic(h header, payload []byte) error {
	op := place.ParseOperation(h.b)
	if op == 0 || len(payload) != atomicSize {
		return fmt.Errorf("%w: an Atomic of operation %d, %d bytes of it", transport.ErrProtocol, h.b,
			len(payload))
	}
	a, err := q.newResponse(h.a)
	if err != nil {
		return err
	}
	a.atomic = true
	if a.refused != nil {
		return nil
	}
	key, off := transport.Key(binary.NativeEndian.Uint64(payload)), binary.NativeEndian.Uint64(payload[8:])
	operand, compare := binary.NativeEndian.Uint64(payload[16:]), binary.NativeEndian.Uint64(payload[24:])
	r, err := q.PD.Find(&q.Windows, key, transport.RemoteAtomic, off, wordSize)
	if err == nil && !verbs.Aligned(r.Mem, int(off)) {
		err = place.ErrUnaligned(key, off)
	}
	if err != nil {
		a.refused = err
		return nil
	}
	a.original = place.Atomic(place.Word(r.Mem, int(off)), op, operand, compare)
	q.ReportPlaced()
	return nil
}

// newResponse makes an entry for a Read or an Atomic of the peer. After one that is refused all are: the
// connection ends before their turn.
func (q *qp) newResponse(number uint64) (*readResponse, error) {
	n := q.responses.Tail - q.responses.Head
	if uint64(n) >= q.maxReads {
		return nil, violation.ErrReads(int(q.maxReads))
	}
	if number < q.askedNext {
		return nil, fmt.Errorf("%w: Read or Atomic %d after %d", transport.ErrProtocol, number,
			q.askedNext-1)
	}
	q.askedNext = number + 1
	a := q.responses.Room()
	q.responses.Tail++
	a.number, a.atomic, a.nsrc, a.total, a.sent, a.refused = number, false, 0, 0, 0, nil
	if n > 0 {
		a.refused = q.responses.At(q.responses.Tail - 2).refused
	}
	q.work()
	return a, nil
}

// ReadsAnswered counts what this end has sent through the ring because the peer could not read it.
func (q *qp) ReadsAnswered() transport.ReadStats { return q.answered }

// responseFrames answers Reads and Atomics of the peer, in their order.
func (q *qp) responseFrames() {
	for q.responses.Head != q.responses.Tail {
		a := q.responses.At(q.responses.Head)
		switch {
		case a.refused != nil:
			q.Fail(&queuepair.RefusedRead{Number: a.number, Atomic: a.atomic, Err: a.refused},
				transport.StatusFlushed)
			return
		case a.atomic:
			if q.full(0) {
				return
			}
			q.out.begin(header{op: frameAtomicDone, flags: flagLast, a: a.number, b: a.original})
		case a.sent < a.total:
			s, off := verbs.SegmentAt(a.src[:a.nsrc], a.sent)
			n, ok := q.piece(int(s.Length - off))
			if !ok {
				return
			}
			r, err := q.PD.Find(&q.Windows, s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
			if err != nil {
				a.refused = err
				continue
			}
			first, second := q.beginFrame(header{length: n, op: frameReadData, a: a.number})
			copy(second, r.Mem[s.Offset+off:][copy(first, r.Mem[s.Offset+off:]):])
			q.endFrame(n)
			a.sent += n
			q.answered.Bytes += uint64(n)
			q.answered.Copied += uint64(n)
			continue
		default:
			if q.full(0) {
				return
			}
			q.out.begin(header{op: frameReadDone, flags: flagLast, a: a.number, b: uint64(a.total)})
		}
		q.responses.Head++
	}
}
