package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// Transfer transfers an application's own connection to RDMA mode (C2).
func (e *endpoint) Transfer(ctx context.Context, conn net.Conn, ahead []byte, role transport.Role,
	rank uint32) error {
	if conn == nil {
		return fmt.Errorf("%w: no connection to transfer", transport.ErrInvalid)
	}
	defer conn.Close()
	if err := e.transfer(ctx, conn, ahead, role, rank); err != nil {
		return fmt.Errorf("transferring the connection with rank %d: %w", rank, err)
	}
	return nil
}

func (e *endpoint) transfer(ctx context.Context, conn net.Conn, ahead []byte, role transport.Role,
	rank uint32) error {
	if rank == e.id.Rank || rank >= e.id.Size {
		return fmt.Errorf("%w: this is rank %d of %d", transport.ErrInvalid, e.id.Rank, e.id.Size)
	}
	ctx, done, err := e.table.Begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	own, err := adopt(conn)
	if err != nil {
		return err
	}
	conn.Close() // whatever of the application still uses it ends here; the socket is ours alone
	defer own.Close()
	s := newStream(own)
	s.lent = true
	defer s.until(ctx, provenTimeout)()
	switch role {
	case transport.Initiator:
		err = e.transferAsInitiator(s, ahead, rank)
	case transport.Responder:
		s.Conn = &lead{own, ahead}
		err = e.transferAsResponder(s, rank)
	default:
		err = fmt.Errorf("%w: role %d", transport.ErrInvalid, role)
	}
	switch {
	case err == nil:
		return nil
	case e.table.Context().Err() != nil:
		return transport.ErrDeviceGone
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("at %v: %w", own.RemoteAddr(), vanished(err))
}

func (e *endpoint) transferAsInitiator(s *stream, ahead []byte, rank uint32) error {
	s.foreign = ahead
	peer, ok := e.table.Dial(rank)
	if !ok {
		return cm.ErrCollision
	}
	q, err := e.initiate(s, peer, rank)
	e.table.Dialed(peer, q)
	return err
}

func (e *endpoint) transferAsResponder(s *stream, rank uint32) error {
	p, theirs, private, err := e.prove(s, func(initiator uint32) bool { return initiator == rank }, func() {})
	if err == nil {
		return e.accept(s, &p, theirs, private)
	}
	if errors.Is(err, transport.ErrNotWeft) && !s.answered {
		// Nobody else gets an answer to what is no handshake. Here it is most likely the application's,
		// which is to get to know.
		if e.certs != nil && s.session == nil {
			s.Write([]byte{21, 3, 3, 0, 2, 2, 10}) // in TLS: a fatal alert, unexpected message
		} else {
			s.reject(handshake.RejectOther, err.Error())
		}
	}
	return err
}

// adopt makes a connection of our own of the application's socket.
func adopt(conn net.Conn) (net.Conn, error) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%w: a %T is no socket; only a connected stream socket can be transferred",
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

// lead is a connection with bytes that come before what is in the socket.
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
