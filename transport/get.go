package transport

import "errors"

// Getter is the part of a QP that carries out a Read at once, into memory that the caller has in hand: out of
// the peer's memory as it stands there, without the peer. It is there where DeviceAttr.DirectReads says so.
type Getter interface {
	// Get is an OpRead without any flag of a segment into dst, which is as long as that and need not be
	// registered. An immediate that was posted before may be delivered after it. It fails with ErrNotNow
	// where it cannot be done at the moment, or the key is not in use any more, and with another error where
	// this segment will never be read so: the queue pair may not read it, or the system refuses. After either
	// the Read may be posted, and what dst holds means nothing. dst is the caller's again when Get returns,
	// which takes as long as the copy does.
	Get(dst []byte, from *Segment) error
}

// ErrNotNow is the failure of a Get that may succeed later.
var ErrNotNow = errors.New("memory cannot be read at the moment")
