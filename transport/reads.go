package transport

// ReadCounter is the part of a QP that counts the peer's Reads. Where peers read memory by themselves, it
// counts only the Reads that the QP answers; a provider that does not count returns zeros.
type ReadCounter interface {
	ReadsAnswered() ReadStats
}

// ReadStats counts the bytes of the peer's Reads that a QP answered, and how many of those bytes it copied
// first. It copies views, and memory that may change while its checksum is computed (R2).
type ReadStats struct {
	Bytes, Copied uint64
}
