package shm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
)

var errForeign = fmt.Errorf("%w: this process may not reach the memory of the peer's", transport.ErrAccess)

// Get copies what one pass would copy, unless what was posted before has yet to change what is there.
func (q *qp) Get(dst []byte, from *transport.Segment) error {
	if err := q.mayCopy(len(dst), from); err != nil {
		return err
	}
	t, err := q.peer.find(from.Key, transport.RemoteRead, from.Offset, from.Length)
	if err == nil {
		err = q.peer.copyHere(dst, &t, from.Offset)
	}
	if t.entry == nil || !t.stands(from.Key) {
		return transport.ErrNotNow // its owner has taken it out of use, and the bytes may be others
	}
	return err
}

// mayCopy checks a Get, Put or Fill of n bytes, but for its segment's key.
func (q *qp) mayCopy(n int, s *transport.Segment) error {
	switch {
	case q.reads.maxReads == 0:
		return errForeign
	case n == 0 || n > readsPerPass || uint64(n) != s.Length:
		return fmt.Errorf("%w: %d bytes of memory for a segment of %d", transport.ErrInvalid, n, s.Length)
	case !q.open || !q.out.settled():
		return transport.ErrNotNow
	}
	return nil
}

// Put copies to the peer's memory, unless what was posted before has yet to come there.
func (q *qp) Put(src []byte, to *transport.Segment) error { return q.placeHere(len(src), src, to, nil) }

// Fill has the bytes stored in the peer's memory.
func (q *qp) Fill(to *transport.Segment, from transport.Filler) error {
	return q.placeHere(int(min(to.Length, readsPerPass+1)), nil, to, from)
}

// placeHere carries out a Put of src, or a Fill, of n bytes.
func (q *qp) placeHere(n int, src []byte, to *transport.Segment, from transport.Filler) error {
	if err := q.mayCopy(n, to); err != nil {
		return err
	}
	if !q.beginPlacing() {
		q.endPlacing()
		return transport.ErrNotNow
	}
	t, err := q.peer.find(to.Key, transport.RemoteWrite, to.Offset, to.Length)
	switch {
	case err == nil:
		if err = transport.ErrNotNow; t.enter(to.Key, true) {
			err = q.peer.placeIn(n, src, to, from, &t)
			t.leave()
		}
	case t.entry == nil:
		err = transport.ErrNotNow
	}
	q.endPlacing()
	if err == nil {
		q.tellPlaced()
	}
	return err
}

// placeIn places the bytes.
func (f *peerMapping) placeIn(n int, src []byte, to *transport.Segment, from transport.Filler,
	t *target) error {
	switch {
	case t.shared && from != nil:
		from.Fill(f.mem[t.where+to.Offset:][:n:n])
	case t.shared:
		place.Bytes(f.mem[t.where+to.Offset:][:n], src)
	case from != nil:
		return errors.ErrUnsupported
	case !f.foreign:
		return errForeign
	default:
		return f.foreignErr(f.own.Write(src, t.where+to.Offset))
	}
	return nil
}

// copyHere copies memory of the peer at an offset of a region. Whatever comes of it counts only if the key is
// still in use afterwards.
func (f *peerMapping) copyHere(dst []byte, t *target, offset uint64) error {
	from := t.where + offset
	switch {
	case t.shared:
		copy(dst, f.mem[from:][:len(dst)])
		return nil
	case !f.foreign:
		return errForeign
	}
	return f.foreignErr(f.own.Read(dst, from))
}

// foreignErr takes the result of a system call that copies memory of the peer's process.
func (f *peerMapping) foreignErr(err error) error {
	switch {
	case f.copying.gaveUp.Load():
		f.foreign = false // nobody is there any more
		return errForeign
	case errors.Is(err, syscall.EFAULT): // pages that cannot be reached; others can
		return fmt.Errorf("%w: the system does not copy this memory of process %d: %w", transport.ErrAccess,
			f.own.Pid, err)
	case err != nil:
		f.foreign = false // it is refused for all of the process's memory
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return nil
}
