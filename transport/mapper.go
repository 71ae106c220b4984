package transport

// Mapper is a QP whose peer's memory can be part of this process. Whoever wants it asserts for it: a QP of
// most providers is none.
type Mapper interface {
	// MapRegion maps the memory of a region of the peer here, to be loaded and stored by the processor. The
	// region gives the rights RemoteRead, RemoteWrite and RemoteAtomic; nothing checks them afterwards, and
	// the mapping outlives the connection: who uses it past the region's life sees memory of no meaning. The
	// caller calls unmap when it needs the memory no more. It reports false where that memory cannot be
	// mapped.
	MapRegion(key Key) (mem []byte, unmap func() error, ok bool)
}
