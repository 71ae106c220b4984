// Package link is one connected socket in RDMA mode, plain or encrypted. Whoever owns a link drives it with
// calls that never block.
package link

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Link is one connected socket. Its owner closes the descriptor.
type Link struct {
	fd      int
	session *Session // nil where the socket is not encrypted
}

// New makes the link of a non-blocking socket; encrypted, if there is a session.
func New(fd int, s *Session) Link {
	if s != nil {
		s.enterRDMAMode(fd)
	}
	return Link{fd, s}
}

// readAhead is how much more than a payload is read, for the next header in the same call.
const readAhead = 4 << 10

// Read reads into dst, and what follows into staging; without a dst only into staging. n is -1 if nothing
// has come yet, and 0 at the end of the stream. If n is less than asked, nothing is left in the socket.
// With buffered it reads only what the link has taken from the socket already.
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

// Heard reports whether anything has come from the socket since the last call, if only a part of what Read
// could return. It is false for a link that is not encrypted, which returns all that comes.
func (l Link) Heard() bool { return l.session != nil && l.session.takeHeard() }

// Write gives the socket a batch that is sealed. n is what the link has taken, -1 if nothing; a frame of
// which it has taken a part must be finished before another begins.
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

// WriteFrame gives the socket one frame, as Write does.
func (l Link) WriteFrame(b []byte) (n int, err error) {
	if l.session != nil {
		return l.session.writeFrame(b)
	}
	return sys.Write(l.fd, b)
}

// MaxWrite is how large a batch may be when another frame is added to it.
func (l Link) MaxWrite() int {
	if l.session != nil {
		return maxPlaintext
	}
	return frame.MaxWrite
}

// Pending is how many bytes the link has taken and the socket has not. While there are any, the link takes no
// batch.
func (l Link) Pending() int {
	if l.session == nil {
		return 0
	}
	return l.session.pending()
}

// Flush gives the socket what is pending, and reports whether the socket has taken any of it.
func (l Link) Flush() (progress bool, err error) {
	if l.session == nil {
		return false, nil
	}
	return l.session.flush()
}
