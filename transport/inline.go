package transport

// InlineWriter is the part of a QP that carries out a small Write at once, out of what the caller has in
// hand: straight into the peer's memory, if that is mapped here, or straight to the network. It is there
// where DeviceAttr.InlineWrites says so.
type InlineWriter interface {
	// WriteInline is an OpWrite without any flag to a segment: head, then payload, and tail, little-endian,
	// as the last 8 bytes of the segment. They are placed as those of every Write are (DeviceAttr.TailLast).
	// What lies between payload and tail has bytes of earlier Writes to the same place, or zeros. It reports
	// false where that cannot be done at the moment, for whatever reason: then nothing has happened, and the
	// Write is to be posted. Head and payload are the caller's again when WriteInline returns.
	WriteInline(to *Segment, head, payload []byte, tail uint64) bool

	// PrefetchAddr is where a WriteInline to this offset of the region that the last Write went to would
	// write in this process's memory, for a prefetch and nothing else: there may be no memory any more. 0
	// where that is not known, or in no memory of this process.
	PrefetchAddr(offset uint64) uintptr
}

// TailSize is the length of the tail of WriteInline in bytes.
const TailSize = 8
