package setup

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// Adopt begins the handshake of an application's own connection (C2). ahead is what the application has
// already read from it: the beginning of the handshake at a responder, and an error at an initiator. Adopt
// closes conn, so that only the handshake uses the socket.
func Adopt(local *Local, conn net.Conn, ahead []byte, role transport.Role) (*Handshake, error) {
	own, err := duplicate(conn)
	if err != nil {
		return nil, err
	}
	conn.Close()
	h := New(local, own)
	h.adopted = true
	switch role {
	case transport.Initiator:
		h.readAhead = ahead
	case transport.Responder:
		h.conn = &lead{own, ahead}
	default:
		own.Close()
		return nil, fmt.Errorf("%w: role %d", transport.ErrInvalid, role)
	}
	return h, nil
}

// Close closes the connection, unless Detach has taken its socket.
func (h *Handshake) Close() { h.socket.Close() }

// RejectGarbage sends a Reject to a peer whose data is not a handshake. It is called only for an
// application's connection: there the peer is most likely the application, not an attacker.
func (h *Handshake) RejectGarbage(err error) {
	switch {
	case !errors.Is(err, transport.ErrNotWeft) || h.answered:
	case h.local.Certificates != nil && h.session == nil:
		h.Write([]byte{21, 3, 3, 0, 2, 2, 10}) // in TLS: a fatal alert, unexpected message
	default:
		h.Reject(handshake.RejectOther, err.Error())
	}
}

// duplicate returns a connection of our own that uses the application's socket.
func duplicate(conn net.Conn) (net.Conn, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%w: a %T is not a socket; only a connected stream socket can be transferred",
			transport.ErrInvalid, conn)
	}
	control, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	fd, dupErr := -1, error(nil)
	if err := errors.Join(control.Control(func(theirs uintptr) { fd, dupErr = sys.Dup(int(theirs)) }),
		dupErr); err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	f := os.NewFile(uintptr(fd), "connection")
	defer f.Close()
	own, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrInvalid, err)
	}
	network := own.LocalAddr().Network()
	if network != "tcp" && network != "unix" || own.RemoteAddr() == nil {
		own.Close()
		return nil, fmt.Errorf("%w: a socket of the kind %q; only a connected stream socket can be "+
			"transferred", transport.ErrInvalid, network)
	}
	return own, nil
}

// lead is a connection with bytes that precede those in the socket.
type lead struct {
	net.Conn
	bytes []byte
}

func (l *lead) Read(b []byte) (int, error) {
	if len(l.bytes) == 0 {
		return l.Conn.Read(b)
	}
	n := copy(b, l.bytes)
	l.bytes = l.bytes[n:]
	return n, nil
}
