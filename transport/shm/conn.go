package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// network is the kind of socket that the handshake uses: connected, with message boundaries.
const network = "unixpacket"

// conn is a connection during the handshake.
type conn struct {
	*net.UnixConn
	pid      int  // of the peer
	rejected bool // by the peer
}

// identify gets the peer's process and user from the system. Only processes of the same user may connect.
func (c *conn) identify() error {
	pid, uid, err := sys.PeerOf(c.UnixConn)
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("%w: the peer is a process of user %d, and this one of user %d",
			transport.ErrAuth, uid, os.Geteuid())
	}
	c.pid = pid
	return err
}

// within makes reads and writes end after d, or with the context.
func (c *conn) within(ctx context.Context, d time.Duration) (release func() bool) {
	c.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

// receive reads the message of type want, with at most the given number of descriptors. A Reject in its place
// is an error.
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

// retryTransit is the pause before a descriptor is sent again when too many of this user's are in transit.
const retryTransit = time.Millisecond

// send sends a message with a descriptor.
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
	c.Write(appendReject(nil, code, text)) // an error means that the peer is gone
}

// turnDown sends the peer a Reject for an error in its message, unless the peer has rejected us or is gone.
// It returns the error.
func (c *conn) turnDown(err error) error {
	if !c.rejected {
		handshake.TurnDown(err, handshakeVersion, c.reject)
	}
	return err
}

// lost describes the end of a connection during the handshake, or before it.
func lost(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w: nobody listens there any more: %w", transport.ErrPeerLost, err)
	}
	return handshake.Vanished(err)
}
