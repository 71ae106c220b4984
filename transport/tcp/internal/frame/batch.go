package frame

import (
	"hash/crc32"
	"unsafe"
)

const (
	// payloads up to here are copied after their header; larger ones are gathered from where they lie
	MaxCopied = 2 << 10
	// copied payloads of one write, and their headers: 64 KiB of a view are two frames, and one write
	BatchSize = 64<<10 + 256
	// bytes of one write: a large message goes fastest whole, the kernel of the other side having no part in
	// its sending then
	MaxWrite = 2 << 20
	// MaxPieces is how many pieces of memory one write has at most.
	MaxPieces = 64

	// MaxBatchFrames is how many frames go into one write at most.
	MaxBatchFrames = 8 * MaxPieces

	// MaxSGE is how many pieces of memory the payload of a frame is gathered from at most.
	MaxSGE = 8

	// MaxCheckedResponse is the most of an answer to a Read that is copied into a frame with a checksum,
	// because its memory may change at any time, and the checksum has to be that of the bytes that go out.
	MaxCheckedResponse = 16 << 10
)

// Batch gathers the frames of one write. A completion queue has one, for the queue pairs that send
// through it: it is empty between writes.
type Batch struct {
	buf   [BatchSize]byte
	used  int
	from  int // of buf, not yet in vec
	vec   [MaxPieces][]byte
	n     int
	bytes int
	ends  [MaxBatchFrames]int // of the frames: bytes from the beginning
	count int                 // of ends

	header int // bytes of a header, with its CRC if the queue pair has them, and what lanes add
	begun  int // the present frame: where in buf it begins
	pieces int // and the length of vec before it
}

// Reset empties the batch. A frame has a header of a size, with its checksum and what lanes add.
func (o *Batch) Reset(header int) {
	o.used, o.from, o.n, o.bytes, o.count = 0, 0, 0, 0, 0
	o.header = header
}

// Empty tells whether nothing is in the batch, size how many bytes are.
func (o *Batch) Empty() bool { return o.bytes == 0 }
func (o *Batch) Size() int   { return o.bytes }

// Finish notes the end of the frame made last.
func (o *Batch) Finish() {
	o.ends[o.count] = o.bytes
	o.count++
}

// Frames are the ends of the frames that are finished, in bytes from the beginning.
func (o *Batch) Frames() []int { return o.ends[:o.count] }

// Last is the header of the frame made last.
func (o *Batch) Last() []byte { return o.buf[o.begun : o.begun+o.header] }

// MaxCopy is how large a payload can be that is copied into the buffer with a checksum.
func (o *Batch) MaxCopy() int { return BatchSize - o.used - LaneHeaderSize - 2*SumSize }

// Scratch is the buffer of an empty batch, for a frame that goes out by itself.
func (o *Batch) Scratch(n int) []byte { return o.buf[:n:n] }

// Contiguous is all of a sealed batch if that is one piece of the buffer, as it is for small frames.
func (o *Batch) Contiguous() []byte {
	if o.n == 1 && o.from == o.used && o.bytes == o.used {
		return o.buf[:o.used]
	}
	return nil
}

// Pieces are the pieces of a sealed batch.
func (o *Batch) Pieces() [][]byte { return o.vec[:o.n] }

// Full tells whether the next frame might not fit.
func (o *Batch) Full() bool {
	return o.bytes >= MaxWrite || o.used > BatchSize-LaneHeaderSize-2*SumSize-MaxCopied ||
		o.n > MaxPieces-MaxSGE-3 || o.count == len(o.ends)
}

// Begin puts a frame's header into the buffer, and gives room after it for n bytes of payload.
func (o *Batch) Begin(h Header, n int) []byte {
	o.begun, o.pieces = o.used, o.n
	b := o.room(o.header + n)
	h.Put(b)
	return b[o.header:]
}

// room gives n bytes of the buffer to be filled.
func (o *Batch) room(n int) []byte {
	b := o.buf[o.used : o.used+n]
	o.used += n
	o.bytes += n
	return b
}

// Seal puts what has been filled of the buffer into the list.
func (o *Batch) Seal() {
	if o.from < o.used {
		o.vec[o.n] = o.buf[o.from:o.used]
		o.n++
		o.from = o.used
	}
}

// Direct adds memory from where it lies.
func (o *Batch) Direct(b []byte) {
	o.Seal()
	o.vec[o.n] = b
	o.n++
	o.bytes += len(b)
}

// Sum puts the checksums of the frame that was made last into the room after its header and after its
// payload. The frame goes out as it stands now: what is copied stands in the batch, and what is gathered
// from a request's memory must not change before that completes.
func (o *Batch) Sum() {
	header := o.buf[o.begun:][:o.header-SumSize]
	putSum(o.buf[o.begun+len(header):], crc32.Checksum(header, Castagnoli))
	copied := o.buf[o.begun+o.header : o.used]
	sum := crc32.Update(0, Castagnoli, copied)
	gathered := o.vec[min(o.pieces+1, o.n):o.n] // after the piece that the header ends
	for _, v := range gathered {
		sum = crc32.Update(sum, Castagnoli, v)
	}
	if len(copied) > 0 || len(gathered) > 0 {
		putSum(o.room(SumSize), sum)
	}
}

// owns tells whether b lies in the batch's buffer.
func (o *Batch) owns(b []byte) bool {
	p, base := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&o.buf[0]))
	return p >= base && p < base+BatchSize
}
