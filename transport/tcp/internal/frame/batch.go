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
func (b *Batch) Reset(header int) {
	b.used, b.from, b.n, b.bytes, b.count = 0, 0, 0, 0, 0
	b.header = header
}

// Empty reports whether nothing is in the batch, size how many bytes are.
func (b *Batch) Empty() bool { return b.bytes == 0 }
func (b *Batch) Size() int   { return b.bytes }

// Finish notes the end of the frame made last.
func (b *Batch) Finish() {
	b.ends[b.count] = b.bytes
	b.count++
}

// Frames are the ends of the frames that are finished, in bytes from the beginning.
func (b *Batch) Frames() []int { return b.ends[:b.count] }

// Last is the header of the frame made last.
func (b *Batch) Last() []byte { return b.buf[b.begun : b.begun+b.header] }

// MaxCopy is how large a payload can be that is copied into the buffer with a checksum.
func (b *Batch) MaxCopy() int { return BatchSize - b.used - LaneHeaderSize - 2*SumSize }

// Scratch is the buffer of an empty batch, for a frame that goes out by itself.
func (b *Batch) Scratch(n int) []byte { return b.buf[:n:n] }

// Contiguous is all of a sealed batch if that is one piece of the buffer, as it is for small frames.
func (b *Batch) Contiguous() []byte {
	if b.n == 1 && b.from == b.used && b.bytes == b.used {
		return b.buf[:b.used]
	}
	return nil
}

// Pieces are the pieces of a sealed batch.
func (b *Batch) Pieces() [][]byte { return b.vec[:b.n] }

// Full reports whether the next frame might not fit.
func (b *Batch) Full() bool {
	return b.bytes >= MaxWrite || b.used > BatchSize-LaneHeaderSize-2*SumSize-MaxCopied ||
		b.n > MaxPieces-MaxSGE-3 || b.count == len(b.ends)
}

// Begin puts a frame's header into the buffer, and gives room after it for n bytes of payload.
func (b *Batch) Begin(h Header, n int) []byte {
	b.begun, b.pieces = b.used, b.n
	mem := b.room(b.header + n)
	h.Put(mem)
	return mem[b.header:]
}

// room gives n bytes of the buffer to be filled.
func (b *Batch) room(n int) []byte {
	mem := b.buf[b.used : b.used+n]
	b.used += n
	b.bytes += n
	return mem
}

// Seal puts what has been filled of the buffer into the list.
func (b *Batch) Seal() {
	if b.from < b.used {
		b.vec[b.n] = b.buf[b.from:b.used]
		b.n++
		b.from = b.used
	}
}

// Direct adds memory from where it lies.
func (b *Batch) Direct(mem []byte) {
	b.Seal()
	b.vec[b.n] = mem
	b.n++
	b.bytes += len(mem)
}

// Sum puts the checksums of the frame that was made last into the room after its header and after its
// payload. The frame goes out as it stands now: what is copied stands in the batch, and what is gathered
// from a request's memory must not change before that completes.
func (b *Batch) Sum() {
	header := b.buf[b.begun:][:b.header-SumSize]
	putSum(b.buf[b.begun+len(header):], crc32.Checksum(header, Castagnoli))
	copied := b.buf[b.begun+b.header : b.used]
	sum := crc32.Update(0, Castagnoli, copied)
	gathered := b.vec[min(b.pieces+1, b.n):b.n] // after the piece that the header ends
	for _, v := range gathered {
		sum = crc32.Update(sum, Castagnoli, v)
	}
	if len(copied) > 0 || len(gathered) > 0 {
		putSum(b.room(SumSize), sum)
	}
}

// owns reports whether mem lies in the batch's buffer.
func (b *Batch) owns(mem []byte) bool {
	p, base := uintptr(unsafe.Pointer(&mem[0])), uintptr(unsafe.Pointer(&b.buf[0]))
	return p >= base && p < base+BatchSize
}
