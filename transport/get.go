package transport

import "errors"

// Getter is the part of a QP that carries out a Read immediately, into memory of the caller: it copies out of
// the peer's memory, without the peer's participation. It is available if DeviceAttr.DirectReads is set.
type Getter interface {
	// Get is an OpRead without flags of one segment into dst, which is as long as the segment and need not be
	// registered. An immediate that was posted before may be delivered after it. Get fails with ErrNotNow if
	// it cannot be done at the moment, or if the key is no longer valid. It fails with another error if this
	// segment can never be read in this way: the queue pair may not read it, or the system refuses. After
	// either error, the Read may be posted, and the contents of dst are undefined. dst belongs to the caller
	// again when Get returns, which takes as long as the copy does.
	Get(dst []byte, from *Segment) error
}

// ErrNotNow is the error of a Get that may succeed later.
var ErrNotNow = errors.New("memory cannot be read at the moment")
