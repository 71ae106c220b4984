package transport

import "errors"

// DirectCopier is the part of a QP that copies between this process and the peer's memory immediately,
// without the peer's participation. It is available if DeviceAttr.DirectCopies is set. What was posted before
// with an immediate may be delivered after it.
//
// They fail with ErrNotNow if they cannot be done at the moment, or if the key is no longer valid.
// They fail with another error if this segment can never be copied in this way: the queue pair may not read
// or write it, or the system refuses. After either error, the Read or the Write may be posted, and the
// contents of the destination are undefined. The caller's memory need not be registered. It belongs to the
// caller again when the call returns, which takes as long as the copy does.
type DirectCopier interface {
	// Get is an OpRead without flags of one segment into dst, which is as long as the segment.
	Get(dst []byte, from *Segment) error

	// Put is an OpWrite without flags of src to one segment, which is as long as src. The bytes are placed
	// when it returns.
	Put(src []byte, to *Segment) error

	// Fill is a Put of bytes that are not contiguous: from stores them. It fails with
	// errors.ErrUnsupported if the segment's memory is not mapped into this process.
	Fill(to *Segment, from Filler) error
}

// Filler stores what a Fill places.
type Filler interface {
	// Fill stores all bytes of mem, which is as long as the segment. It does not block.
	Fill(mem []byte)
}

// ErrNotNow is the error of a Get, Put or Fill that may succeed later.
var ErrNotNow = errors.New("memory cannot be reached at the moment")
