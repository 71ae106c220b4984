package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/words"
	"github.com/weft-mpi/weft/transport"
)

var _ transport.Placer = (*qp)(nil)

// Place writes into memory that the last Write went to as well, under the same conditions as PostSend carries one out at once.
func (q *qp) Place(to *transport.Segment, head transport.Head, payload []byte, tail uint64) bool {
	n, offset := to.Length, to.Offset
	if !q.open || to.Key != q.key || q.key == 0 || n < transport.HeadSize+wordSize || uint64(len(payload)) > n-(transport.HeadSize+wordSize) ||
		offset > q.length || n > q.length-offset {
		return false
	}
	sys.StoreRelease(q.placing, q.mark+1)
	q.mark += 2
	if atomic.LoadUint64(q.attention)&attentionClosed != 0 || atomic.LoadUint64(q.entry) != uint64(q.key) {
		sys.StoreRelease(q.placing, q.mark)
		return false
	}
	at := unsafe.Add(q.base, offset)
	m := (*[transport.HeadSize + wordSize]byte)(at)[:] // what is longer is longer by a word at least: the tail
	words.Put(m, 0, head.A)
	words.Put(m, wordSize, head.B)
	words.Put(m, 2*wordSize, head.C)
	if len(payload) == wordSize { // as many messages are
		words.Put(m, transport.HeadSize, words.Get(payload, 0))
	} else {
		words.Copy(unsafe.Slice((*byte)(unsafe.Add(at, transport.HeadSize)), len(payload)), payload)
	}
	storeTail(unsafe.Add(at, n-wordSize), words.LittleEndian(tail))
	sys.StoreRelease(q.placing, q.mark)
	if atomic.LoadUint64(q.attention) != 0 {
		q.tellWrote()
	}
	return true
}

// Line is in the peer's memory.
func (q *qp) Line(offset uint64) uintptr {
	if q.key == 0 || offset >= q.length {
		return 0
	}
	return uintptr(q.base) + uintptr(offset)
}

// Shared tells that Place writes into the peer's memory.
func (q *qp) Shared() bool { return true }
