package shm

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/transport"
)

// Operations of an Atomic frame.
const (
	atomicFetchAdd    = 1
	atomicCompareSwap = 2
)

const (
	atomicSize  = 32 // payload of an Atomic frame: key, offset, operand, what is compared with, of 8 bytes each
	segmentSize = 24 // of the payload of a Read Request: key, offset, length
)

// ask carries out a Read or an Atomic: here, if all that it names can be reached from here, else it has the peer answer it. It tells whether
// what is posted behind it may go on.
func (q *qp) ask(w *wqe, budget *int) bool {
	if *budget <= 0 {
		return false
	}
	if w.asked || q.began-q.read >= q.most {
		return false
	}
	if q.began != q.read {
		return q.request(w) // the peer answers earlier ones yet, and they complete in order
	}
	if !q.out.done() { // what was posted before it comes first
		q.waits = true
		return false
	}
	if !w.alive() {
		return q.gone(w)
	}
	if w.op != transport.OpRead {
		return q.atomicHere(w)
	}
	for w.got < w.total {
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
		w.got += n
		*budget -= n
	}
	if w.total == 0 && len(w.remote) > 0 {
		for _, s := range w.remote {
			if _, err := q.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				q.refuse(w, err)
				return false
			}
		}
	}
	w.done = true
	return true
}

// readHere copies the next bytes of a Read, at most so many, straight from the peer's memory. It gives 0 if that cannot be done.
func (q *qp) readHere(w *wqe, most int) (int, error) {
	if w.got == 0 { // nothing is read of what is refused in part
		for _, s := range w.remote {
			if _, err := q.find(s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
				return 0, err
			}
		}
	}
	s, off := segmentAt(w.remote, w.got)
	p, at, n := stretch(w.local, w.got, min(most, int(s.Length-off)))
	t, err := q.find(s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
	if err != nil {
		return 0, err
	}
	if !q.copyHere(p.r.mem[at:at+n], &t, s.Key, s.Offset+off) {
		return 0, nil
	}
	if !t.stands(s.Key) {
		return 0, fmt.Errorf("%w: the region of key %#x was deregistered while it was read", transport.ErrAccess, uint64(s.Key))
	}
	return n, nil
}

// segmentAt finds the segment that byte off of a list lies in, and the offset there.
func segmentAt(list []transport.Segment, off int) (transport.Segment, uint64) {
	o := uint64(off)
	for _, s := range list {
		if o < s.Length {
			return s, o
		}
		o -= s.Length
	}
	return transport.Segment{}, 0
}

// request asks the peer for a Read, or what is left of it, or for an Atomic.
func (q *qp) request(w *wqe) bool {
	if w.op != transport.OpRead {
		return q.requestAtomic(w)
	}
	var list [maxSegments]transport.Segment
	n, skip := 0, uint64(w.got)
	for _, s := range w.remote {
		k := min(skip, s.Length)
		skip -= k
		if s.Length > k || w.total == 0 {
			list[n] = transport.Segment{Key: s.Key, Offset: s.Offset + k, Length: s.Length - k}
			n++
		}
	}
	if q.full(n * segmentSize) {
		return false
	}
	q.out.begin(header{length: n * segmentSize, op: frameReadRequest, flags: flagLast, a: w.number, b: uint64(w.total - w.got)})
	var b [maxSegments * segmentSize]byte
	for i, s := range list[:n] {
		binary.LittleEndian.PutUint64(b[i*segmentSize:], uint64(s.Key))
		binary.LittleEndian.PutUint64(b[i*segmentSize+8:], s.Offset)
		binary.LittleEndian.PutUint64(b[i*segmentSize+16:], s.Length)
	}
	q.out.put(b[:n*segmentSize])
	w.asked = true
	q.began++
	return true
}

// checkAtomic refuses a request that cannot be right.
func (q *qp) checkAtomic(wr *transport.SendWR) error {
	switch {
	case q.most == 0:
		return fmt.Errorf("%w: an Atomic on a queue pair that may have no Read outstanding", transport.ErrInvalid)
	case wr.Flags&transport.FlagInline != 0:
		return fmt.Errorf("%w: an Atomic inline", transport.ErrInvalid)
	case len(wr.Local) != 1 || wr.Local[0].Length != wordSize:
		return fmt.Errorf("%w: an Atomic wants one local element of %d bytes for the word as it was", transport.ErrInvalid, wordSize)
	case len(wr.Remote) != 1 || wr.Remote[0].Length != wordSize || wr.Remote[0].Offset%wordSize != 0:
		return fmt.Errorf("%w: an Atomic wants one remote segment of %d bytes at a multiple of %d", transport.ErrInvalid, wordSize, wordSize)
	}
	_, err := q.pd.local(wr.Local[0], transport.LocalWrite)
	return err
}

// atomicHere changes a word in memory that is mapped here; of other memory the peer does it.
func (q *qp) atomicHere(w *wqe) bool {
	s := w.remote[0]
	if !q.beginPlacing() {
		q.endPlacing()
		return false
	}
	t, err := q.find(s.Key, transport.RemoteAtomic, s.Offset, wordSize)
	if err == nil && t.shared && (t.where+s.Offset)%wordSize != 0 {
		err = errUnaligned(s.Key, s.Offset)
	}
	var original uint64
	if err == nil && t.shared {
		original = operate((*uint64)(unsafe.Pointer(&q.far.mem[t.where+s.Offset])), w.op == transport.OpFetchAdd, w.imm, w.other)
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
	w.original(original)
	w.done = true
	return true
}

func errUnaligned(key transport.Key, off uint64) error {
	return fmt.Errorf("%w: an Atomic at %d of the region of key %#x, which is at no multiple of %d", transport.ErrAccess, off, uint64(key), wordSize)
}

// operate changes a word, and gives it as it was.
func operate(at *uint64, add bool, operand, compare uint64) uint64 {
	if add {
		return atomic.AddUint64(at, operand) - operand
	}
	return compareSwap(at, compare, operand)
}

// original places the word as it was where the poster wants it.
func (w *wqe) original(v uint64) {
	p := w.local[0]
	var b [wordSize]byte
	binary.NativeEndian.PutUint64(b[:], v)
	place(p.r.mem[p.off:][:wordSize], b[:])
	w.got = wordSize
}

// requestAtomic asks the peer to change a word.
func (q *qp) requestAtomic(w *wqe) bool {
	if q.full(atomicSize) {
		return false
	}
	operation := uint64(atomicFetchAdd)
	if w.op == transport.OpCompareSwap {
		operation = atomicCompareSwap
	}
	q.out.begin(header{length: atomicSize, op: frameAtomic, flags: flagLast, a: w.number, b: operation})
	for _, v := range [...]uint64{uint64(w.remote[0].Key), w.remote[0].Offset, w.imm, w.other} {
		q.out.word(v)
	}
	w.asked = true
	q.began++
	return true
}

// asking is our oldest Read or Atomic that the peer answers. Everything before it in the queue is done, so it is the head.
func (q *qp) asking() *wqe {
	if q.sq.head == q.sq.tail {
		return nil
	}
	if w := q.sq.at(q.sq.head); w.asked && !w.done {
		return w
	}
	return nil
}

// readData takes n bytes of our oldest Read.
func (q *qp) readData(h header, pieces [2][]byte) error {
	w := q.asking()
	if w == nil || w.op != transport.OpRead || w.number != h.a || h.length > w.total-w.got {
		return fmt.Errorf("%w: data of Read %d, which is not what is due", transport.ErrProtocol, h.a)
	}
	if !w.alive() {
		return fmt.Errorf("%w: the destination of a Read was deregistered before it was complete", transport.ErrAccess)
	}
	for _, b := range pieces {
		for len(b) > 0 {
			p, at, k := stretch(w.local, w.got, len(b))
			copy(p.r.mem[at:at+k], b)
			b, w.got = b[k:], w.got+k
		}
	}
	return nil
}

// answered takes the end of our oldest Read or Atomic.
func (q *qp) answered(h header) error {
	w := q.asking()
	if w == nil || w.number != h.a || (w.op == transport.OpRead) != (h.op == frameReadDone) || w.op == transport.OpRead && w.got != w.total {
		return fmt.Errorf("%w: %v %d, which is not what is due", transport.ErrProtocol, h.op, h.a)
	}
	if w.op != transport.OpRead {
		if !w.alive() {
			return fmt.Errorf("%w: the destination of an Atomic was deregistered before it was complete", transport.ErrAccess)
		}
		w.original(h.b)
	}
	w.done = true
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
	a, err := q.answer(h.a)
	if err != nil || a.refused != nil {
		return err
	}
	for i := range n {
		b := payload[i*segmentSize:]
		s := transport.Segment{Key: transport.Key(binary.LittleEndian.Uint64(b)), Offset: binary.LittleEndian.Uint64(b[8:]),
			Length: binary.LittleEndian.Uint64(b[16:])}
		if _, err := q.dev.regions.find(q, s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
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

// askedAtomic takes an Atomic of the peer and carries it out at once: what came before it is placed. The answer waits for its turn among
// those of the Reads, and so does a refusal.
func (q *qp) askedAtomic(h header, payload []byte) error {
	if h.b != atomicFetchAdd && h.b != atomicCompareSwap || len(payload) != atomicSize {
		return fmt.Errorf("%w: an Atomic of operation %d, %d bytes of it", transport.ErrProtocol, h.b, len(payload))
	}
	a, err := q.answer(h.a)
	if err != nil {
		return err
	}
	a.atomic = true
	if a.refused != nil {
		return nil
	}
	key, off := transport.Key(binary.NativeEndian.Uint64(payload)), binary.NativeEndian.Uint64(payload[8:])
	operand, compare := binary.NativeEndian.Uint64(payload[16:]), binary.NativeEndian.Uint64(payload[24:])
	r, err := q.dev.regions.find(q, key, transport.RemoteAtomic, off, wordSize)
	if err == nil && !aligned(r.mem, int(off)) {
		err = errUnaligned(key, off)
	}
	if err != nil {
		a.refused = err
		return nil
	}
	a.original = operate(word(r.mem, int(off)), h.b == atomicFetchAdd, operand, compare)
	q.placed()
	return nil
}

// answer makes an entry for a Read or an Atomic of the peer. Behind one that is refused all are: the connection ends before their turn.
func (q *qp) answer(number uint64) (*answer, error) {
	n := q.answers.tail - q.answers.head
	if n >= maxReads {
		return nil, &violation{code: terminateReads, err: fmt.Errorf("%w: more than %d Reads outstanding", transport.ErrProtocol, maxReads)}
	}
	if number < q.askedNext {
		return nil, fmt.Errorf("%w: Read or Atomic %d behind %d", transport.ErrProtocol, number, q.askedNext-1)
	}
	q.askedNext = number + 1
	a := q.answers.push()
	a.number, a.atomic, a.nsrc, a.total, a.sent, a.refused = number, false, 0, 0, 0, nil
	if n > 0 {
		a.refused = q.answers.at(q.answers.tail - 2).refused
	}
	q.work()
	return a, nil
}

// answerFrames answers Reads and Atomics of the peer, in their order.
func (q *qp) answerFrames() {
	for q.answers.head != q.answers.tail {
		a := q.answers.at(q.answers.head)
		switch {
		case a.refused != nil:
			q.fail(&refusedRead{a.number, a.atomic, a.refused}, transport.StatusFlushed)
			return
		case a.atomic:
			if q.full(0) {
				return
			}
			q.out.begin(header{op: frameAtomicDone, flags: flagLast, a: a.number, b: a.original})
		case a.sent < a.total:
			s, off := segmentAt(a.src[:a.nsrc], a.sent)
			n, ok := q.piece(int(s.Length - off))
			if !ok {
				return
			}
			r, err := q.dev.regions.find(q, s.Key, transport.RemoteRead, s.Offset+off, uint64(n))
			if err != nil {
				a.refused = err
				continue
			}
			first, second := q.beginFrame(header{length: n, op: frameReadData, a: a.number})
			copy(second, r.mem[s.Offset+off:][copy(first, r.mem[s.Offset+off:]):])
			q.endFrame(n)
			a.sent += n
			continue
		default:
			if q.full(0) {
				return
			}
			q.out.begin(header{op: frameReadDone, flags: flagLast, a: a.number, b: uint64(a.total)})
		}
		q.answers.head++
	}
}
