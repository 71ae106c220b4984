// Package link provides one connected socket in RDMA mode, plain or encrypted. Its calls never block.
package link

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Link is one connected socket. Its owner closes the descriptor.
type Link struct {
	fd      int
	session *Session // nil if the socket is not encrypted
}

// New makes the link of a non-blocking socket, encrypted if s is not nil.
func New(fd int, s *Session) Link {
	if s != nil {
		s.enterRDMAMode(fd)
	}
	return Link{fd, s}
}

// readAhead is how many bytes are read after a payload in the same call: the next header.
const readAhead = 4 << 10

// Read reads into dst, and then into staging; with a nil dst only into staging. n is -1 if there is no data
// yet, and 0 at the end of the stream. If n is less than asked, the socket is empty. With buffered it reads
// only bytes that the link has already read from the socket.
func (l Link) Read(dst, staging []byte, buffered bool) (asked, n int, err error) {
	switch {
	case l.session != nil:
		return l.session.read(dst, staging, buffered)
	case buffered:
		return 0, -1, nil
	case dst == nil:
		n, err = sys.Read(l.fd, staging)
		return len(staging), n, err
	}
	v := [2]sys.Iovec{sys.Vec(dst), sys.Vec(staging[:readAhead])}
	n, err = sys.Readv(l.fd, v[:])
	return len(dst) + readAhead, n, err
}

// Heard reports whether the socket has had data since the last call, even if too little for Read to return.
// It is false for a link that is not encrypted, which returns all data.
func (l Link) Heard() bool { return l.session != nil && l.session.takeHeard() }

// Write writes a sealed batch. n is the number of bytes that the link has accepted, -1 for none; a frame that
// it has accepted in part must be finished before another begins.
func (l Link) Write(o *frame.Batch) (n int, err error) {
	if l.session != nil {
		return l.session.write(o)
	}
	if b := o.Contiguous(); b != nil {
		return sys.Write(l.fd, b)
	}
	var v [frame.MaxPieces]sys.Iovec
	pieces := o.Pieces()
	for i, p := range pieces {
		v[i] = sys.Vec(p)
	}
	return sys.Writev(l.fd, v[:len(pieces)])
}

// WriteFrame writes one frame, like Write.
func (l Link) WriteFrame(b []byte) (n int, err error) {
	if l.session != nil {
		return l.session.writeFrame(b)
	}
	return sys.Write(l.fd, b)
}

// MaxWrite returns the size of a batch above which no further frame may be added to it.
func (l Link) MaxWrite() int {
	if l.session != nil {
		return maxPlaintext
	}
	return frame.MaxWrite
}

// Pending returns the number of bytes that the link has accepted and the socket has not. While there are any,
// the link accepts no batch.
func (l Link) Pending() int {
	if l.session == nil {
		return 0
	}
	return l.session.pending()
}

// Flush writes the pending bytes to the socket, and reports whether the socket has accepted any.
func (l Link) Flush() (progress bool, err error) {
	if l.session == nil {
		return false, nil
	}
	return l.session.flush()
}
