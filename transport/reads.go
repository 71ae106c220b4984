package transport

// ReadCounter is the part of a QP that counts what it has answered of the peer's Reads. A provider whose
// peers read by themselves counts only what they leave to it; one that counts nothing returns zeros.
type ReadCounter interface {
	ReadsAnswered() ReadStats
}

// ReadStats counts the bytes of the peer's Reads that a QP has answered, and those of them that it copied
// before they went out: none, but for views, and for memory that may change under a checksum (R2).
type ReadStats struct {
	Bytes, Copied uint64
}
