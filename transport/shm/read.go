package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// segmentSize is the size of a segment of a Read Request (key, offset, length), and of an Atomic (key,
// offset, operand).
const segmentSize = 24

// reader carries out this end's Reads and Atomics, or requests them from the peer.
type reader struct {
	q        *qp
	maxReads uint64 // outstanding at once: the smaller of both ends' numbers
	began    uint64 // requested from the peer
	read     uint64 // of these, done
}

// ask carries out a Read or an Atomic here if all its memory can be accessed from here, or else requests it
// from the peer. It reports whether later requests may be carried out.
func (r *reader) ask(w *verbs.Request, budget *int) bool {
	q := r.q
	if w.Asked || r.began-r.read >= r.maxReads {
		return false
	}
	if r.began == r.read && !q.out.done() { // earlier requests come first
		q.out.waits = true
		return false
	}
	if *budget <= 0 { // after the check above: only work for the next pass prevents sleeping
		return false
	}
	if r.began != r.read {
		return r.request(w) // the peer still answers earlier ones, and they complete in order
	}
	if !w.Alive() {
		q.RegionGone(w)
		return false
	}
	if w.Op != transport.OpRead {
		return r.atomicHere(w)
	}
	for w.Got < w.Total {
		if *budget <= 0 {
			return false
		}
		n, err := r.readHere(w, *budget)
		if err != nil {
			q.refuse(w, err)
			return false
		}
		if n == 0 { // the peer must do it
			return r.request(w)
		}
		w.Got += n
		*budget -= n
	}
	if w.Total == 0 {
		for _, s := range w.Remote {
			if _, err := q.peer.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				q.refuse(w, err)
				return false
			}
		}
	}
	w.Done = true
	return true
}

// readHere copies the next bytes of a Read, at most limit, directly from the peer's memory. It returns 0 if
// that is not possible.
func (r *reader) readHere(w *verbs.Request, limit int) (int, error) {
	q := r.q
	if w.Got == 0 { // check all segments first: a refused Read reads nothing
		for _, s := range w.Remote {
			if _, err := q.peer.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				return 0, err
			}
		}
	}
	s, off := verbs.SegmentAt(w.Remote, w.Got)
	p, at, n := verbs.Span(w.Local, w.Got, min(limit, int(s.Length-off)))
	t, err := q.peer.find(s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
	if err != nil {
		return 0, err
	}
	err = q.peer.copyHere(p.Region.Mem[at:at+n], &t, s.Offset+off)
	if !t.stands(s.Key) {
		return 0, fmt.Errorf("%w: the region of key %#x was deregistered while it was read",
			transport.ErrAccess, uint64(s.Key))
	}
	if err != nil {
		return 0, nil // the peer can copy it
	}
	return n, nil
}

// request requests a Read, or the rest of one, or an Atomic from the peer.
func (r *reader) request(w *verbs.Request) bool {
	q := r.q
	if w.Op != transport.OpRead {
		return r.requestAtomic(w)
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
	if q.out.full(n * segmentSize) {
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
	r.began++
	return true
}

// atomicHere carries out an Atomic on mapped memory; the peer does it on other memory.
func (r *reader) atomicHere(w *verbs.Request) bool {
	q := r.q
	s := w.Remote[0]
	if !q.beginPlacing() {
		q.endPlacing()
		return false
	}
	t, err := q.peer.find(s.Key, transport.RemoteAtomic, s.Offset, wordSize)
	if err == nil && t.shared && (t.where+s.Offset)%wordSize != 0 {
		err = place.ErrUnaligned(s.Key, s.Offset)
	}
	var original uint64
	switch {
	case err != nil || !t.shared:
	case !t.enter(s.Key, false):
		err = verbs.ErrKey(s.Key)
	default:
		at := (*uint64)(unsafe.Pointer(&q.peer.mem[t.where+s.Offset]))
		original = atomic.AddUint64(at, w.Imm) - w.Imm
		t.leave()
	}
	q.endPlacing()
	if err != nil {
		q.refuse(w, err)
		return false
	}
	if !t.shared {
		return r.request(w)
	}
	q.tellPlaced()
	place.Original(w, original)
	w.Done = true
	return true
}

// requestAtomic requests an Atomic from the peer.
func (r *reader) requestAtomic(w *verbs.Request) bool {
	q := r.q
	if q.out.full(segmentSize) {
		return false
	}
	q.out.begin(header{length: segmentSize, op: frameAtomic, flags: flagLast, a: w.Number})
	for _, v := range [...]uint64{uint64(w.Remote[0].Key), w.Remote[0].Offset, w.Imm} {
		q.out.word(v)
	}
	w.Asked = true
	r.began++
	return true
}

// asking returns our oldest Read or Atomic that the peer answers, or nil. Everything before it in the queue
// is done, so it is the head.
func (r *reader) asking() *verbs.Request {
	q := r.q
	if q.SQ.Head == q.SQ.Tail {
		return nil
	}
	if w := q.SQ.At(q.SQ.Head); w.Asked && !w.Done {
		return w
	}
	return nil
}

// readData stores bytes of our oldest Read.
func (r *reader) readData(h header, pieces [2][]byte) error {
	w := r.asking()
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

// completeRead handles the end of our oldest Read or Atomic.
func (r *reader) completeRead(h header) error {
	w := r.asking()
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
	r.read++
	r.q.retire()
	return nil
}

// ReadsAnswered counts the Reads that this end answered through the ring because the peer could not read the
// memory.
func (q *qp) ReadsAnswered() transport.ReadStats { return q.answer.answered }
