package shm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
)

var (
	errForeign = fmt.Errorf("%w: this process may not access the peer's memory", transport.ErrAccess)
	errNoGet   = fmt.Errorf("%w: a Get where no Read may be outstanding", transport.ErrAccess)
)

// Get copies memory of the peer, unless earlier requests have yet to change it.
func (q *qp) Get(dst []byte, from *transport.Segment) error {
	if q.reads.maxReads == 0 {
		return errNoGet
	}
	if err := q.mayCopy(len(dst), from); err != nil {
		return err
	}
	t, err := q.peer.find(from.Key, transport.RemoteRead, from.Offset, from.Length)
	if err == nil {
		err = q.peer.copyHere(dst, &t, from.Offset)
	}
	if t.entry == nil || !t.stands(from.Key) {
		return transport.ErrNotNow // the owner has invalidated the key, so the bytes may be another region's
	}
	return err
}

// mayCopy checks a Get, Put or Fill of n bytes, except for the key of its segment.
func (q *qp) mayCopy(n int, s *transport.Segment) error {
	switch {
	case n > readsPerPass:
		return fmt.Errorf("%w: a copy of %d bytes; at most %d are possible", transport.ErrInvalid, s.Length,
			readsPerPass)
	case n == 0 || uint64(n) != s.Length:
		return fmt.Errorf("%w: %d bytes of memory for a segment of %d", transport.ErrInvalid, n, s.Length)
	case !q.open || !q.out.settled():
		return transport.ErrNotNow
	}
	return nil
}

// Put copies to the peer's memory, unless earlier requests have yet to be placed.
func (q *qp) Put(src []byte, to *transport.Segment) error { return q.placeHere(len(src), src, to, nil) }

// Fill stores bytes into the peer's memory.
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
		return f.foreignErr(f.outside.Write(src, t.where+to.Offset))
	}
	return nil
}

// copyHere copies memory of the peer at an offset of a region. The result counts only if the key is still
// valid afterwards.
func (f *peerMapping) copyHere(dst []byte, t *target, offset uint64) error {
	from := t.where + offset
	switch {
	case t.shared:
		copy(dst, f.mem[from:][:len(dst)])
		return nil
	case !f.foreign:
		return errForeign
	}
	return f.foreignErr(f.outside.Read(dst, from))
}

// foreignErr returns the error for the result of a system call that copies memory of the peer's process.
func (f *peerMapping) foreignErr(err error) error {
	switch {
	case f.copying.gaveUp.Load():
		f.foreign = false // the process is gone
		return errForeign
	case errors.Is(err, syscall.EFAULT): // these pages cannot be copied; others can
		return fmt.Errorf("%w: the system does not copy this memory of process %d: %w", transport.ErrAccess,
			f.outside.Pid, err)
	case err != nil:
		f.foreign = false // refused for all of the process's memory
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return nil
}
