package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
)

// WriteInline writes into a region in the peer's arena under the same conditions as PostSend carries a Write
// out at once. Do not keep values alive across a call here: the compiler would spill them to the stack from
// the first instruction on, also on the common path, which makes no call.
func (q *qp) WriteInline(to *transport.Segment, head, payload []byte, tail uint64) bool {
	if to.Key != q.key {
		return q.aim(to.Key) && q.WriteInline(to, head, payload, tail)
	}
	n, offset := to.Length, to.Offset
	if !q.open || q.key == 0 || uint64(len(head)+len(payload)+wordSize) > n || offset > q.length ||
		n > q.length-offset {
		return false
	}
	sys.StoreRelease(q.placementSeq, q.placementMark+1)
	q.placementMark += 2
	if atomic.LoadUint64(q.notifyEnable)&notifyClosed != 0 || atomic.LoadUint64(q.entry) != uint64(q.key) {
		sys.StoreRelease(q.placementSeq, q.placementMark)
		return false
	}
	at := unsafe.Add(q.base, offset)
	end := unsafe.Add(at, n-wordSize)
	if len(head) != 3*wordSize || len(payload) != wordSize {
		return q.writeParts(at, end, head, payload, tail)
	}
	m := (*[4 * wordSize]byte)(at)[:] // a message of one word: the common case
	wordcopy.Put(m, 0, wordcopy.Get(head, 0))
	wordcopy.Put(m, wordSize, wordcopy.Get(head, wordSize))
	wordcopy.Put(m, 2*wordSize, wordcopy.Get(head, 2*wordSize))
	wordcopy.Put(m, 3*wordSize, wordcopy.Get(payload, 0))
	return q.endInline(end, tail)
}

// writeParts finishes a WriteInline of any length. The first line of a very long one, which the peer may be
// polling, is written after the others: it goes from core to core once. A stream of shorter ones would lose.
func (q *qp) writeParts(at, end unsafe.Pointer, head, payload []byte, tail uint64) bool {
	if len(payload) > firstLast {
		first := int(-(uintptr(at) + uintptr(len(head))) % lineSize) // bytes of the payload in that line
		rest := unsafe.Add(at, len(head)+first)
		sys.CopyLong(unsafe.Slice((*byte)(rest), len(payload)-first), payload[first:])
		payload = payload[:first]
	}
	putShort(at, head)
	putShort(unsafe.Add(at, len(head)), payload)
	return q.endInline(end, tail)
}

// endInline places the tail of a WriteInline, and notifies the peer if it asked for that.
func (q *qp) endInline(end unsafe.Pointer, tail uint64) bool {
	place.Tail(end, wordcopy.LittleEndian(tail))
	sys.StoreRelease(q.placementSeq, q.placementMark)
	if atomic.LoadUint64(q.notifyEnable) != 0 {
		q.tellWrote()
	}
	return true
}

// aim makes the region with a key the target of WriteInline; false if that is not possible.
func (q *qp) aim(key transport.Key) bool {
	if q.swapTarget(key) {
		return true
	}
	if !q.open || q.fenced {
		return false
	}
	t, err := q.peer.find(key, transport.RemoteWrite, 0, 0)
	if err != nil || !t.shared || t.counted {
		return false
	}
	q.before = q.writeTarget
	q.writeTo(key, &t)
	return true
}

// swapTarget makes the previous write target current if it has this key, so that alternating Writes to two
// regions stay fast.
func (w *fastWrite) swapTarget(key transport.Key) bool {
	if w.before.key != key {
		return false
	}
	w.writeTarget, w.before = w.before, w.writeTarget
	return true
}

// writeTo makes a region the target of WriteInline.
func (q *qp) writeTo(key transport.Key, t *target) {
	q.writeTarget = writeTarget{entry: &t.entry.key, key: key,
		base: unsafe.Pointer(&q.peer.mem[t.where]), length: t.length}
	if t.length <= maxFilled {
		touch(q.peer.mem[t.where:][:t.length])
	}
}

// longWrite is the length above which an inline Write uses a copy that avoids fetching the destination's
// cache lines.
const longWrite = 512

// firstLast is the length above which the first line of an inline Write is written last.
const firstLast = 4 << 10

const lineSize = 64

// putShort copies b, with few instructions for the two most common lengths.
func putShort(at unsafe.Pointer, b []byte) {
	switch len(b) {
	case wordSize:
		wordcopy.Put((*[wordSize]byte)(at)[:], 0, wordcopy.Get(b, 0))
	case 3 * wordSize:
		m := (*[3 * wordSize]byte)(at)[:]
		wordcopy.Put(m, 0, wordcopy.Get(b, 0))
		wordcopy.Put(m, wordSize, wordcopy.Get(b, wordSize))
		wordcopy.Put(m, 2*wordSize, wordcopy.Get(b, 2*wordSize))
	default:
		if len(b) > longWrite {
			sys.CopyLong(unsafe.Slice((*byte)(at), len(b)), b)
			return
		}
		wordcopy.Copy(unsafe.Slice((*byte)(at), len(b)), b)
	}
}

// PrefetchAddr returns an address in the peer's mapped memory.
func (q *qp) PrefetchAddr(offset uint64) uintptr {
	if q.key == 0 || offset >= q.length {
		return 0
	}
	return uintptr(q.base) + uintptr(offset)
}
