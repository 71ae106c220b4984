package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
)

// stream is a connection in the handshake.
type stream struct {
	net.Conn               // what messages go through
	socket   net.Conn      // the connection below
	session  *link.Session // nil where it is not encrypted
	proven   int64         // the rank in the peer's certificate, or -1
	foreign  []byte        // came before the handshake, and belongs to none
	read     int           // bytes read
	rejected bool          // by the peer
	answered bool          // the peer has been told that it is turned down
	joins    bool          // it may be a lane of a queue pair that stands
	lent     bool          // it was an application's: it cannot be re-established
	dialed   string        // where it was made to; none if it was not made here
}

func newStream(conn net.Conn) *stream { return &stream{Conn: conn, socket: conn, proven: -1} }

// until has reads and writes end at a deadline, or with the context.
func (s *stream) until(ctx context.Context, d time.Duration) (release func() bool) {
	// not through TLS, which may have left streaming mode by the time that the context ends
	s.socket.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, func() { s.socket.SetDeadline(time.Unix(1, 0)) })
}

// message reads the message that is due (0: any), or a Reject: exactly it, not a byte more, since what
// follows may be of the other mode (C2). Nothing is read of the body of another one.
func (s *stream) message(want messageType) (messageType, []byte, error) {
	var prefix [prefixSize]byte
	if err := s.full(prefix[:]); err != nil {
		return 0, nil, err
	}
	t, n, err := parsePrefix(prefix[:])
	if err == nil && want != 0 && t != want && t != typeReject {
		err = fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, want)
	}
	if err != nil {
		return t, nil, err
	}
	body := make([]byte, n)
	return t, body, s.full(body)
}

func (s *stream) full(b []byte) error {
	n, err := io.ReadFull(s.Conn, b)
	s.read += n
	if err != nil && s.session != nil {
		return unprotected(err)
	}
	return err
}

// detach takes the descriptor out of the connection for raw use.
func (s *stream) detach() (int, error) {
	f, err := s.socket.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		return -1, err
	}
	if err := errors.Join(sys.PrepareSocket(fd), s.socket.Close()); err != nil {
		sys.CloseFD(fd)
		return -1, err
	}
	return fd, nil
}

// expect reads the message that is due, or the Reject in its place.
func expect(s *stream, want messageType) ([]byte, error) {
	t, body, err := s.message(want)
	s.rejected = t == typeReject
	if err == nil && s.rejected {
		err = handshake.ParseReject(body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

// first reads a first message, unless the magic before it is wrong.
func (s *stream) first() ([]byte, error) {
	raw := make([]byte, helloSize)
	err := s.full(raw[:len(magic)])
	if s.read > 0 && string(raw[:s.read]) != magic[:s.read] {
		// At once: what is no Hello may be shorter than one, and then waits for an answer.
		err := fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, raw[:s.read])
		if raw[0] == recordHandshake && s.session == nil {
			s.reject(handshake.RejectOther,
				"connections are not encrypted here, and yours is: "+bothOrNeither)
			return nil, fmt.Errorf("%w, which is TLS, and here connections are not encrypted: %s", err,
				bothOrNeither)
		}
		return nil, err
	}
	if err == nil {
		err = s.full(raw[len(magic):])
	}
	return raw, err
}

func (s *stream) reject(code handshake.RejectCode, text string) {
	s.answered = true
	s.Write(appendReject(nil, code, text)) // it is told if it listens
}

// turnDown tells the peer what is wrong with its message, unless it has turned us down itself or is gone. It
// returns the error.
func (s *stream) turnDown(err error) error {
	if !s.rejected {
		handshake.TurnDown(err, handshakeVersion, s.reject)
	}
	return err
}

// vanished words the end of a stream in the middle of the handshake.
func vanished(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it closed the connection during the handshake", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: it reset the connection during the handshake", transport.ErrPeerLost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it does not answer during the handshake: %w", transport.ErrPeerLost,
			os.ErrDeadlineExceeded)
	}
	return err
}

// isCut tells whether a stream has been closed or reset by its other end.
func isCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
