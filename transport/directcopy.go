package transport

import "errors"

// DirectCopier is the part of a QP that copies between this process and the peer's memory immediately,
// without the peer's participation. It is available if DeviceAttr.DirectCopies is set. A direct copy may
// overtake the delivery of a Write with immediate that was posted before it.
//
// Get, Put and Fill return ErrNotNow if the copy cannot be done now, or if the key is no longer valid. Any
// other error is permanent for this segment: the QP may not access it, or the system refuses the copy. After
// an error the contents of the destination are undefined, and the Read or the Write may be posted instead.
// A provider may refuse copies that are longer than the Piece of its fabric (package fabric) in this way.
// The caller's memory need not be registered, and belongs to the caller again when the call returns, which
// takes as long as the copy.
type DirectCopier interface {
	// Get is an OpRead without flags of one segment into dst, which is as long as the segment.
	Get(dst []byte, from *Segment) error

	// Put is an OpWrite without flags of src to one segment, which is as long as src. The bytes are placed
	// when it returns.
	Put(src []byte, to *Segment) error

	// Fill is a Put whose bytes a Filler stores, for bytes that are not contiguous. It fails with
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
