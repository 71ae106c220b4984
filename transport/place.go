package transport

// Placer is implemented by a QP in which a Write can be composed where it goes from: in the peer's memory, if that is mapped here, or among what
// is sent next. So it need not be copied there.
type Placer interface {
	// Place begins an OpWrite without any flag, of n bytes to offset of the region that key names, and gives memory for it. The caller fills that
	// but for the last 8 bytes, and calls Placed, soon, and nothing else of the QP before. What he leaves as it is has bytes of earlier Writes to
	// the same place, or zeros. It gives nil where that cannot be done at the moment, for whatever reason: then the Write is to be posted.
	Place(key Key, offset uint64, n int) []byte

	// Placed ends the Write: it goes out, its last 8 bytes after all others and as one word.
	Placed(last [8]byte)

	// Shared tells whether the memory that Place gives is the peer's own.
	Shared() bool
}
