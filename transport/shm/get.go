package shm

import "github.com/weft-mpi/weft/transport"

// Get copies what one pass would copy, unless what was posted before has yet to change what is there.
func (q *qp) Get(dst []byte, from *transport.Segment) bool {
	n := len(dst)
	if !q.open || q.most == 0 || n == 0 || n > readsPerPass || uint64(n) != from.Length || !q.out.settled() {
		return false
	}
	t, err := q.find(from.Key, transport.RemoteRead, from.Offset, from.Length)
	return err == nil && q.copyHere(dst, &t, from.Key, from.Offset) && t.stands(from.Key)
}

// copyHere copies memory of the peer at an offset of a region; false if this process may not do that, or
// there is no peer any more.
func (q *qp) copyHere(dst []byte, t *target, key transport.Key, offset uint64) bool {
	from := t.where + offset
	switch {
	case t.shared:
		copy(dst, q.peer.mem[from:][:len(dst)])
	case !q.peer.reads:
		return false
	default:
		err := q.peer.own.Read(dst, from)
		if err != nil && t.stands(key) || q.conn.read.gaveUp.Load() {
			q.peer.reads = false // it is refused, or nobody is there any more
			return false
		}
	}
	return true
}
