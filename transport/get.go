package transport

// Getter is the part of a QP that carries out a Read at once, into memory that the caller has in hand: out of
// the peer's memory as it stands there, without the peer. It is there where DeviceAttr.DirectReads says so.
type Getter interface {
	// Get is an OpRead without any flag of a segment into dst, which is as long as that and need not be
	// registered. An immediate that was posted before may be delivered after it. It reports false where it
	// cannot be done at the moment, for whatever reason: then the Read is to be posted, and what dst holds
	// means nothing. dst is the caller's again when Get returns, which takes as long as the copy does.
	Get(dst []byte, from *Segment) bool
}
