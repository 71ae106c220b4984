package transport

// Mapper is a QP that can map the peer's memory into this process. Use a type assertion to find out; the QPs
// of most providers do not implement it.
type Mapper interface {
	// MapRegion maps the memory of a region of the peer into this process, for loads and stores. The region
	// must have the rights RemoteRead, RemoteWrite and RemoteAtomic. Nothing checks accesses afterwards, and
	// the mapping outlives the connection: after the region's life, its contents are meaningless. The caller
	// calls unmap when it no longer needs the memory. ok is false if the memory cannot be mapped.
	MapRegion(key Key) (mem []byte, unmap func() error, ok bool)
}
