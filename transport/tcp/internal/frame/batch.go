package frame

import (
	"hash/crc32"
	"unsafe"
)

const (
	// payloads up to this size are copied after their header; larger ones are added by reference
	MaxCopied = 2 << 10
	// headers and copied payloads of one write: 64 KiB of a view are two frames in one write
	BatchSize = 64<<10 + 256
	// bytes of one write. A large message is fastest in one write: then its sending does not depend on the
	// acknowledgements of the peer's kernel
	MaxWrite = 2 << 20
	// MaxPieces is the maximum number of memory ranges of one write.
	MaxPieces = 64

	// MaxBatchFrames is the maximum number of frames of one write.
	MaxBatchFrames = 8 * MaxPieces

	// MaxSGE is the maximum number of memory ranges of one frame's payload.
	MaxSGE = 8

	// MaxCheckedResponse is the largest part of a Read's answer that is copied into a frame with a checksum.
	// The copy is needed because the memory may change at any time, and the checksum must match the bytes
	// that are sent.
	MaxCheckedResponse = 16 << 10
)

// Batch collects the frames of one write. A completion queue has one, for the queue pairs that send through
// it: it is empty between writes.
type Batch struct {
	buf   [BatchSize]byte
	used  int
	from  int // beginning of the bytes of buf that are not yet in vec
	vec   [MaxPieces][]byte
	n     int
	bytes int
	ends  [MaxBatchFrames]int // end of each frame, in bytes from the beginning
	count int                 // of ends

	header int // bytes of a header, with its CRC and the words of lanes
	begun  int // beginning of the last frame in buf
	pieces int // length of vec before the last frame
}

// Reset empties the batch. header is the size of a frame's header, with its checksum and the words of lanes.
func (b *Batch) Reset(header int) {
	b.used, b.from, b.n, b.bytes, b.count = 0, 0, 0, 0, 0
	b.header = header
}

// Empty reports whether the batch is empty; Size returns its bytes.
func (b *Batch) Empty() bool { return b.bytes == 0 }
func (b *Batch) Size() int   { return b.bytes }

// Finish ends the frame made last.
func (b *Batch) Finish() {
	b.ends[b.count] = b.bytes
	b.count++
}

// Frames returns the ends of the finished frames, in bytes from the beginning.
func (b *Batch) Frames() []int { return b.ends[:b.count] }

// Last returns the header of the frame made last.
func (b *Batch) Last() []byte { return b.buf[b.begun : b.begun+b.header] }

// MaxCopy returns the largest payload that can be copied into the buffer with a checksum.
func (b *Batch) MaxCopy() int { return BatchSize - b.used - LaneHeaderSize - 2*SumSize }

// Scratch returns n bytes of the buffer of an empty batch, for a frame that is sent by itself.
func (b *Batch) Scratch(n int) []byte { return b.buf[:n:n] }

// Contiguous returns a sealed batch if it is contiguous in the buffer, as it is for small frames, or nil.
func (b *Batch) Contiguous() []byte {
	if b.n == 1 && b.from == b.used && b.bytes == b.used {
		return b.buf[:b.used]
	}
	return nil
}

// Pieces returns the memory ranges of a sealed batch.
func (b *Batch) Pieces() [][]byte { return b.vec[:b.n] }

// Full reports whether the next frame might not fit.
func (b *Batch) Full() bool {
	return b.bytes >= MaxWrite || b.used > BatchSize-LaneHeaderSize-2*SumSize-MaxCopied ||
		b.n > MaxPieces-MaxSGE-3 || b.count == len(b.ends)
}

// Begin adds a frame's header, and returns room after it for n bytes of payload.
func (b *Batch) Begin(h Header, n int) []byte {
	b.begun, b.pieces = b.used, b.n
	mem := b.room(b.header + n)
	h.Put(mem)
	return mem[b.header:]
}

// room returns the next n bytes of the buffer, to be filled.
func (b *Batch) room(n int) []byte {
	mem := b.buf[b.used : b.used+n]
	b.used += n
	b.bytes += n
	return mem
}

// Seal adds the filled bytes of the buffer to the list of memory ranges.
func (b *Batch) Seal() {
	if b.from < b.used {
		b.vec[b.n] = b.buf[b.from:b.used]
		b.n++
		b.from = b.used
	}
}

// Direct adds memory by reference.
func (b *Batch) Direct(mem []byte) {
	b.Seal()
	b.vec[b.n] = mem
	b.n++
	b.bytes += len(mem)
}

// Sum adds the checksums of the frame made last, after its header and after its payload. Memory that was
// added by reference must not change before its request completes.
func (b *Batch) Sum() {
	header := b.buf[b.begun:][:b.header-SumSize]
	putSum(b.buf[b.begun+len(header):], crc32.Checksum(header, Castagnoli))
	copied := b.buf[b.begun+b.header : b.used]
	sum := crc32.Update(0, Castagnoli, copied)
	gathered := b.vec[min(b.pieces+1, b.n):b.n] // after the range that ends with the header
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
