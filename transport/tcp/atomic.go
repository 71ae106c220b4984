package tcp

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/weft-mpi/weft/transport"
)

// Operations of an Atomic frame.
const (
	atomicFetchAdd    = 1
	atomicCompareSwap = 2
)

// atomicSize is the payload of an Atomic frame: key, offset, operand, what is compared with, of 8 bytes each.
const atomicSize = 32

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

// atomicFrame asks the peer to change a word.
func (q *qp) atomicFrame(o *outbox, w *wqe) {
	operation := uint64(atomicFetchAdd)
	if w.op == transport.OpCompareSwap {
		operation = atomicCompareSwap
	}
	b := o.begin(header{length: atomicSize, op: opAtomic, flags: flagLast, a: w.number, b: operation}, atomicSize)
	binary.LittleEndian.PutUint64(b, uint64(w.remote[0].Key))
	binary.LittleEndian.PutUint64(b[8:], w.remote[0].Offset)
	binary.LittleEndian.PutUint64(b[16:], w.imm)
	binary.LittleEndian.PutUint64(b[24:], w.other)
}

// askedAtomic takes an Atomic of the peer and carries it out at once: what came before it is placed. The answer waits for its turn among
// those of the Reads, and so does a refusal.
func (q *qp) askedAtomic() error {
	i := &q.in
	if i.b != atomicFetchAdd && i.b != atomicCompareSwap || len(i.control) != atomicSize {
		return fmt.Errorf("%w: an Atomic of operation %d, %d bytes of it", transport.ErrProtocol, i.b, len(i.control))
	}
	a, err := q.answer(i.a)
	if err != nil {
		return err
	}
	a.atomic = true
	if a.refused != nil {
		return nil
	}
	q.change(a, i.b, i.control)
	return nil
}

// change carries an Atomic out, of a payload of atomicSize, or notes why it is refused.
func (q *qp) change(a *answer, operation uint64, payload []byte) {
	key, off := transport.Key(binary.LittleEndian.Uint64(payload)), binary.LittleEndian.Uint64(payload[8:])
	operand, compare := binary.LittleEndian.Uint64(payload[16:]), binary.LittleEndian.Uint64(payload[24:])
	r, err := q.dev.regions.find(q, key, transport.RemoteAtomic, off, wordSize)
	if err == nil && !aligned(r.mem, int(off)) {
		err = fmt.Errorf("%w: an Atomic at %d of the region of key %#x, which is at no multiple of %d", transport.ErrAccess, off,
			uint64(key), wordSize)
	}
	if err != nil {
		a.refused = err
		return
	}
	at := word(r.mem, int(off))
	if operation == atomicFetchAdd {
		a.original = atomic.AddUint64(at, operand) - operand
	} else {
		a.original = compareSwap(at, compare, operand)
	}
	q.mark()
}

// compareSwap gives the word as it was; it was replaced if that is compare.
func compareSwap(at *uint64, compare, operand uint64) uint64 {
	for {
		if old := atomic.LoadUint64(at); old != compare {
			return old
		}
		if atomic.CompareAndSwapUint64(at, compare, operand) {
			return compare
		}
	}
}

// atomicDone takes the answer to our oldest Atomic: the word as it was, which is placed as a word of this host.
func (q *qp) atomicDone() error {
	i := &q.in
	w := q.reading()
	if w == nil || w.op == transport.OpRead || w.number != i.a {
		return fmt.Errorf("%w: end of Atomic %d, which is not what is due", transport.ErrProtocol, i.a)
	}
	p := w.local[0]
	if !p.alive() {
		return fmt.Errorf("%w: the destination of an Atomic was deregistered before it was complete", transport.ErrAccess)
	}
	var original [wordSize]byte
	binary.NativeEndian.PutUint64(original[:], i.b)
	placeTail(p.r.mem[p.off:][:wordSize], original[:])
	w.got = wordSize
	w.done = true
	q.read++
	q.retire()
	return nil
}
