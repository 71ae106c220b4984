package transport

// Placer is implemented by a QP that can hand out its peer's memory, because it is mapped here: a Write can be composed where it is to be, and
// need not be copied there.
type Placer interface {
	// Place begins an OpWrite without any flag, of n bytes to offset of the region that key names, and gives the memory there. The caller fills it
	// but for the last 8 bytes, and calls Placed, soon, and nothing else of the QP before. It gives nil where that cannot be done at the moment,
	// for whatever reason: then the Write is to be posted.
	Place(key Key, offset uint64, n int) []byte

	// Placed ends the Write: its last 8 bytes are placed, after all others and as one word.
	Placed(last [8]byte)
}
