package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

var _ transport.Placer = (*qp)(nil)

// Place begins a Write into memory that the last Write went to as well, under the same conditions as PostSend carries one out at once.
func (q *qp) Place(key transport.Key, offset uint64, n int) []byte {
	if !q.open || key != q.key || key == 0 || n < wordSize || offset > q.length || uint64(n) > q.length-offset {
		return nil
	}
	sys.StoreRelease(q.placing, q.mark+1)
	if atomic.LoadUint64(q.attention)&attentionClosed != 0 || atomic.LoadUint64(q.entry) != uint64(q.key) {
		q.mark += 2
		sys.StoreRelease(q.placing, q.mark)
		return nil
	}
	m := unsafe.Slice((*byte)(unsafe.Add(q.base, offset)), n)
	q.last = unsafe.Pointer(&m[n-wordSize])
	return m
}

// Placed ends the Write that Place has begun.
func (q *qp) Placed(last [wordSize]byte) {
	storeTail(q.last, *(*uint64)(unsafe.Pointer(&last)))
	q.mark += 2
	sys.StoreRelease(q.placing, q.mark)
	if atomic.LoadUint64(q.attention) != 0 {
		q.tellWrote()
	}
}

// Shared tells that Place gives the peer's memory.
func (q *qp) Shared() bool { return true }
