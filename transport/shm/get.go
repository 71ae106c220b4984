package shm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/weft-mpi/weft/transport"
)

var errReads = fmt.Errorf("%w: this process may not read the memory of the peer's", transport.ErrAccess)

// Get copies what one pass would copy, unless what was posted before has yet to change what is there.
func (q *qp) Get(dst []byte, from *transport.Segment) error {
	n := len(dst)
	switch {
	case q.maxReads == 0:
		return errReads
	case n == 0 || n > readsPerPass || uint64(n) != from.Length:
		return fmt.Errorf("%w: a Get of %d bytes into %d", transport.ErrInvalid, from.Length, n)
	case !q.open || !q.out.settled():
		return transport.ErrNotNow
	}
	t, err := q.find(from.Key, transport.RemoteRead, from.Offset, from.Length)
	if err == nil {
		err = q.copyHere(dst, &t, from.Offset)
	}
	if t.entry == nil || !t.stands(from.Key) {
		return transport.ErrNotNow // its owner has taken it out of use, and the bytes may be others
	}
	return err
}

// copyHere copies memory of the peer at an offset of a region. Whatever comes of it counts only if the key is
// still in use afterwards.
func (q *qp) copyHere(dst []byte, t *target, offset uint64) error {
	from := t.where + offset
	switch {
	case t.shared:
		copy(dst, q.peer.mem[from:][:len(dst)])
		return nil
	case !q.peer.reads:
		return errReads
	}
	err := q.peer.own.Read(dst, from)
	switch {
	case q.conn.read.gaveUp.Load():
		q.peer.reads = false // nobody is there any more
		return errReads
	case errors.Is(err, syscall.EFAULT): // pages that cannot be read; others can
		return fmt.Errorf("%w: the system does not read this memory of process %d: %w", transport.ErrAccess,
			q.peer.own.Pid, err)
	case err != nil:
		q.peer.reads = false // it is refused for all of the process's memory
		return fmt.Errorf("%w: %w", errReads, err)
	}
	return nil
}
