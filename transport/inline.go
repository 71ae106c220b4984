package transport

// InlineWriter is the part of a QP that carries out a Write immediately from the caller's data: directly into
// the peer's memory if that is mapped in this process, or directly to the network. It is available if
// DeviceAttr.InlineWrites is set.
type InlineWriter interface {
	// WriteInline is an OpWrite without flags to a segment: head, then payload, and tail, little-endian, in
	// the last 8 bytes of the segment. They are placed like those of every Write (DeviceAttr.TailLast). The
	// bytes between payload and tail are those of earlier Writes to the same place, or zeros. WriteInline
	// returns false if the Write cannot be done at the moment, for any reason: nothing has happened then, and
	// the Write must be posted. If it returns true and the Write fails later, a completion with ID 0 says so.
	// head and payload belong to the caller again when WriteInline returns.
	WriteInline(to *Segment, head, payload []byte, tail uint64) bool

	// PrefetchAddr returns the address in this process to which a WriteInline to this offset of the last
	// Write's region would write. It may be used only for a prefetch, because the memory may no longer exist.
	// It is 0 if the address is not known, or not in this process's memory.
	PrefetchAddr(offset uint64) uintptr
}

// TailSize is the length of the tail of WriteInline in bytes.
const TailSize = 8
