package transport

// Placer is implemented by a QP that can carry out a small Write at once, out of what the caller has in hand: straight into the peer's memory, if that
// is mapped here, or straight to the network.
type Placer interface {
	// Place is an OpWrite without any flag to a segment: a head, a payload, and, in the last 8 bytes of the segment, after all others and as one
	// word, a tail, little-endian. What lies between payload and tail has bytes of earlier Writes to the same place, or zeros. It tells false where that
	// cannot be done at the moment, for whatever reason: then nothing has happened, and the Write is to be posted. The payload is the caller's
	// again when Place returns.
	Place(to *Segment, head Head, payload []byte, tail uint64) bool

	// Line is where a Place to this offset of the region that the last Write went to would write in this process's memory, for a prefetch and nothing
	// else: there may be no memory any more. 0 where that is not known, or in no memory of this process.
	Line(offset uint64) uintptr

	// Shared tells whether Place writes into the peer's memory itself.
	Shared() bool
}

// Head is what a Write that is placed begins with: three words, little-endian.
type Head struct{ A, B, C uint64 }

// HeadSize is the length of a Head in bytes.
const HeadSize = 24
