package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Session is the TLS session of a connection, and also the net.Conn that crypto/tls reads and writes. In
// streaming mode it wraps the real connection. In RDMA mode it uses a non-blocking descriptor: a read without
// data returns a temporary error, and a write only appends to a buffer, because a record cannot be written in
// part. So the link accepts a frame either completely, as soon as it is encrypted, or not at all.
type Session struct {
	net.Conn           // streaming mode; nil in RDMA mode
	TLS      *tls.Conn // set by the caller of NewSession
	taken    int       // bytes read in streaming mode

	fd           int
	heard        bool   // data was read from the socket since takeHeard
	bufferedOnly bool   // do not read from the socket, only what crypto/tls has buffered
	records      []byte // records that the socket has not accepted completely
	sent         int    // bytes of records that it has
}

// NewSession makes a session over a connection in streaming mode.
func NewSession(c net.Conn) *Session { return &Session{Conn: c, fd: -1} }

const (
	// MaxHandshake is the most that is read of a peer before the end of the handshake. A real one needs less
	// than 4 KiB.
	MaxHandshake = 16 << 10

	// maxPlaintext is the amount of plaintext after which no further frame is added to a write. Together with
	// the largest frame, it bounds the bytes of a connection that wait for room in its socket.
	maxPlaintext = 64 << 10
)

// ErrRecord is the error of a wrong TLS record: its bytes were changed in transit.
var ErrRecord = fmt.Errorf("%w: TLS", transport.ErrProtocol)

// nothingYet is the error of a read without data. It leaves crypto/tls's session usable.
type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing to read yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// conn is the session as crypto/tls sees it.
type conn struct{ *Session }

// Records returns the connection from which crypto/tls reads records and to which it writes them.
func (s *Session) Records() net.Conn { return conn{s} }

// Read is called by crypto/tls.
func (c conn) Read(b []byte) (int, error) {
	s := c.Session
	if s.Conn != nil {
		if s.taken >= MaxHandshake {
			return 0, fmt.Errorf("%w: handshake is longer than %d bytes", transport.ErrNotWeft, MaxHandshake)
		}
		n, err := s.Conn.Read(b[:min(len(b), MaxHandshake-s.taken)])
		s.taken += n
		return n, err
	}
	if s.bufferedOnly {
		return 0, nothingYet{}
	}
	switch n, err := sys.Read(s.fd, b); {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, nothingYet{}
	case n == 0:
		return 0, io.EOF
	default:
		s.heard = true
		return n, nil
	}
}

// Write is called by crypto/tls, with records.
func (c conn) Write(b []byte) (int, error) {
	s := c.Session
	if s.Conn != nil {
		return s.Conn.Write(b)
	}
	s.records = append(s.records, b...)
	return len(b), nil
}

func (s *Session) enterRDMAMode(fd int) { s.Conn, s.fd = nil, fd }

// read makes one read of plaintext. The end of the connection counts as the end of the stream, even in the
// middle of a record: the Close frame says whether everything was received.
func (s *Session) read(dst, staging []byte, buffered bool) (asked, n int, err error) {
	into := dst
	if dst == nil {
		into = staging
	}
	s.bufferedOnly = buffered
	n, err = s.TLS.Read(into)
	s.bufferedOnly = false
	var code syscall.Errno
	switch {
	case n > 0 || err == nil:
		return n, n, nil // an error is returned by the next call
	case errors.Is(err, nothingYet{}):
		return 0, -1, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, 0, nil
	case errors.As(err, &code):
		return 0, 0, err
	}
	return 0, 0, fmt.Errorf("%w: %w", ErrRecord, err)
}

func (s *Session) takeHeard() bool {
	heard := s.heard
	s.heard = false
	return heard
}

func (s *Session) write(o *frame.Batch) (int, error) {
	for _, v := range o.Pieces() {
		if _, err := s.TLS.Write(v); err != nil {
			return 0, fmt.Errorf("encrypting: %w", err)
		}
	}
	_, err := s.flush()
	return o.Size(), err
}

func (s *Session) writeFrame(b []byte) (int, error) {
	if _, err := s.TLS.Write(b); err != nil {
		return 0, fmt.Errorf("encrypting: %w", err)
	}
	_, err := s.flush()
	return len(b), err
}

func (s *Session) pending() int { return len(s.records) - s.sent }

func (s *Session) flush() (progress bool, err error) {
	if s.pending() == 0 {
		return false, nil
	}
	n, err := sys.Write(s.fd, s.records[s.sent:])
	if err != nil {
		return false, err
	}
	if s.sent += max(n, 0); s.sent == len(s.records) {
		s.records, s.sent = s.records[:0], 0
	}
	return n > 0, nil
}
