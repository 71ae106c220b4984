package shm

import (
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// frameOp is the type of a frame.
type frameOp uint8

const (
	frameWrite       frameOp = iota + 1 // payload for (key a, offset b)
	frameSend                           // payload of message a, at b of it
	frameImmediate                      // b, for the Recv of message a
	frameReadRequest                    // Read a, b bytes, of the segments that are the payload
	frameReadData                       // payload of Read a
	frameReadDone                       // ends Read a, of b bytes
	frameAtomic                         // Atomic a: key, offset, operand
	frameAtomicDone                     // b is the previous value of Atomic a
	frameClose                          // only answers follow
	// reason a, for Read or Atomic b-1 if b is not 0; the payload is a text
	frameTerminate
	frameOps
)

func (o frameOp) String() string {
	names := [...]string{"", "Write", "Send", "Immediate", "Read Request", "Read data",
		"Read Done", "Atomic", "Atomic Done", "Close",
		"Terminate"}
	if int(o) < len(names) && o > 0 {
		return names[o]
	}
	return "frame of no kind"
}

// Flags of a frame.
const (
	flagLast      = 1 << iota // ends its message
	flagSolicited             // whose Recv is worth an event
	// the payload lies in the sender's arena; its offset is in the frame instead
	flagBounced
)

// header is the beginning of a frame: 24 bytes, followed by the payload, padded to a multiple of 8.
type header struct {
	length int
	op     frameOp
	flags  uint8
	a, b   uint64
}

const (
	headerSize       = 24
	framePayload     = 1536 // at most
	terminateReserve = 256  // bytes of the ring kept free for a Terminate
)

func frameSize(n int) int { return headerSize + (n+7)&^7 }

// outRing is the sender's end of a ring.
type outRing struct {
	*controlBlock
	tail     uint64 // bytes written; published up to block.tail
	consumed uint64 // bytes that the peer is known to have consumed
	// the value of tail at the last frame with which a request changes memory or keys of the peer
	effect uint64
	at     int // index of tail in the ring
}

// room reports whether a frame of n bytes of payload fits.
func (o *outRing) room(n int) bool { return o.free(frameSize(n) + terminateReserve) }

func (o *outRing) free(size int) bool {
	if int(o.tail-o.consumed)+size <= ringSize {
		return true
	}
	o.loadConsumed()
	return int(o.tail-o.consumed)+size <= ringSize
}

// loadConsumed reads how much the peer has consumed. An impossible value is ignored.
func (o *outRing) loadConsumed() {
	if c := atomic.LoadUint64(&o.controlBlock.consumed); c-o.consumed <= o.tail-o.consumed {
		o.consumed = c
	}
}

// done reports whether the peer has consumed everything.
func (o *outRing) done() bool {
	if o.consumed != o.tail {
		o.loadConsumed()
	}
	return o.consumed == o.tail
}

// settled reports whether the peer has consumed all requests that change its memory or its keys.
func (o *outRing) settled() bool {
	if o.consumed < o.effect {
		o.loadConsumed()
	}
	return o.consumed >= o.effect
}

// begin writes a frame's header. The caller has checked that there is room.
func (o *outRing) begin(h header) {
	o.word(uint64(h.length) | uint64(h.op)<<32 | uint64(h.flags)<<40)
	o.word(h.a)
	o.word(h.b)
	switch h.op {
	case frameWrite, frameSend, frameAtomic:
		o.effect = o.tail // consumed together with its payload
	}
}

func (o *outRing) word(v uint64) {
	*(*uint64)(unsafe.Pointer(&o.ring[o.at])) = v
	o.move(8)
}

func (o *outRing) move(n int) {
	o.tail += uint64(n)
	if o.at += n; o.at == ringSize {
		o.at = 0
	}
}

// payload returns the memory of the next n bytes, in at most two parts. fill moves past them.
func (o *outRing) payload(n int) (first, second []byte) {
	k := min(n, ringSize-o.at)
	return o.ring[o.at : o.at+k], o.ring[:n-k]
}

func (o *outRing) fill(n int) {
	n = (n + 7) &^ 7
	k := min(n, ringSize-o.at)
	o.move(k)
	o.move(n - k)
}

// put writes a whole payload.
func (o *outRing) put(b []byte) {
	first, second := o.payload(len(b))
	copy(second, b[copy(first, b):])
	o.fill(len(b))
}

// publish makes the written frames visible to the peer.
func (o *outRing) publish() { sys.StoreRelease(&o.controlBlock.tail, o.tail) }

// end tells the peer that this end no longer accesses its memory, doorbells excepted: only tell may follow.
func (o *outRing) end() { sys.StoreRelease(&o.controlBlock.tail, o.tail|tailEnded) }

// inRing is the receiver's end of a ring.
type inRing struct {
	*controlBlock
	head uint64 // bytes consumed
	at   int    // index of head in the ring
}

// there returns how many bytes of frames have been received. A value above the size of the ring is a
// violation, or, with tailEnded, the end of the peer's use of the connection.
func (i *inRing) there() uint64 { return atomic.LoadUint64(&i.controlBlock.tail) - i.head }

func (i *inRing) word() uint64 {
	v := *(*uint64)(unsafe.Pointer(&i.ring[i.at]))
	i.move(8)
	return v
}

func (i *inRing) move(n int) {
	i.head += uint64(n)
	if i.at += n; i.at == ringSize {
		i.at = 0
	}
}

// payload returns the next n bytes, in at most two parts. skip moves past them.
func (i *inRing) payload(n int) (first, second []byte) {
	k := min(n, ringSize-i.at)
	return i.ring[i.at : i.at+k], i.ring[:n-k]
}

func (i *inRing) skip(n int) {
	n = (n + 7) &^ 7
	k := min(n, ringSize-i.at)
	i.move(k)
	i.move(n - k)
}

// settle publishes how much this end has consumed, and reports whether the peer waits for that.
func (i *inRing) settle() (waits bool) {
	if i.controlBlock.consumed == i.head {
		return false
	}
	sys.StoreFenced(&i.controlBlock.consumed, i.head) // wants is read after it
	return atomic.LoadUint64(&i.controlBlock.wants) != 0
}
