package shm

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
)

// network is the kind of sockets that the handshake uses: with connections, and boundaries between messages.
const network = "unixpacket"

// conn is a connection in the handshake.
type conn struct {
	*net.UnixConn
	pid      int  // of the peer
	rejected bool // by the peer
}

// identify asks the system who the peer is: only processes of the same user may go on.
func (c *conn) identify() error {
	pid, uid, err := sys.PeerOf(c.UnixConn)
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("%w: it is a process of user %d, and this one of user %d", transport.ErrAuth, uid,
			os.Geteuid())
	}
	c.pid = pid
	return err
}

// within has reads and writes end after a time, or with the context.
func (c *conn) within(ctx context.Context, d time.Duration) (release func() bool) {
	c.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

// receive reads the message that is due, and at most so many descriptors with it. A Reject in its place is an
// error.
func (c *conn) receive(want messageType, descriptors int) (body []byte, fds []int, err error) {
	buf := make([]byte, messageSize)
	n, fds, err := sys.RecvDescriptors(c.UnixConn, buf, descriptors)
	if err != nil {
		return nil, nil, err
	}
	t, body, err := parseMessage(buf[:n], want)
	if err == nil && t == typeReject {
		c.rejected = true
		err = handshake.ParseReject(body)
	}
	if err != nil {
		closeAll(fds)
		return nil, nil, err
	}
	return body, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		sys.CloseFD(fd)
	}
}

// retryTransit is how long a descriptor is not sent again when too many of this user's are on their way.
const retryTransit = time.Millisecond

// send writes a message, with a descriptor.
func (c *conn) send(ctx context.Context, b []byte, fd int) error {
	for {
		err := sys.SendDescriptors(c.UnixConn, b, fd)
		if !errors.Is(err, syscall.ETOOMANYREFS) || ctx.Err() != nil {
			return err
		}
		time.Sleep(retryTransit)
	}
}

func (c *conn) reject(code handshake.RejectCode, text string) {
	c.Write(appendReject(nil, code, text)) // it is told if it listens
}

// turnDown tells the peer what is wrong with its message, unless it has turned us down itself or is gone. It
// returns the error.
func (c *conn) turnDown(err error) error {
	if !c.rejected {
		handshake.TurnDown(err, handshakeVersion, c.reject)
	}
	return err
}

// ended reports whether an error is the end of a connection by the other side.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// lost words the end of a connection in the middle of the handshake.
func lost(err error) error {
	switch {
	case ended(err):
		return fmt.Errorf("%w: it closed the connection during the handshake", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens there any more: %w", transport.ErrPeerLost, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it does not answer during the handshake", transport.ErrPeerLost)
	}
	return err
}
