package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// secure is the TLS session of a connection, and what crypto/tls takes for its network connection. In streaming mode that is the
// connection itself. In RDMA mode it is the raw descriptor, which never blocks: a read of nothing is an error that crypto/tls takes for a
// passing one, and what it writes is only gathered, since it cannot take back a record of which a part is written.
type secure struct {
	net.Conn // streaming mode; nil in RDMA mode
	tls      *tls.Conn
	taken    int // bytes read in streaming mode

	fd     int
	heard  bool   // something has been read from the socket, if only a part of a record
	dry    bool   // nothing is to be read from the socket, only what crypto/tls already has
	sealed []byte // records that the socket has not taken
	sent   int    // of them, of which it has
}

const (
	// encryptedBytes is how much is read of a peer before start-up is through. A genuine one needs less than 4 KiB.
	encryptedBytes = 16 << 10

	// sealMost is the plaintext behind which no further frame is put into one write. With the frame that goes over it, this bounds
	// what of a connection waits for room in its socket.
	sealMost = 64 << 10
)

// nothingYet is a read of an empty socket, to crypto/tls: its session stays good.
type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing to read yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }

// Read is called by crypto/tls.
func (s *secure) Read(b []byte) (int, error) {
	if s.Conn != nil {
		if s.taken >= encryptedBytes {
			return 0, fmt.Errorf("%w: start-up is longer than %d bytes", transport.ErrNotWeft, encryptedBytes)
		}
		n, err := s.Conn.Read(b[:min(len(b), encryptedBytes-s.taken)])
		s.taken += n
		return n, err
	}
	if s.dry {
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
func (s *secure) Write(b []byte) (int, error) {
	if s.Conn != nil {
		return s.Conn.Write(b)
	}
	s.sealed = append(s.sealed, b...)
	return len(b), nil
}

// raw goes over to RDMA mode.
func (s *secure) raw(fd int) { s.Conn, s.fd = nil, fd }

// pending tells whether records wait for room in the socket.
func (s *secure) pending() bool { return len(s.sealed) > 0 }

// seal encrypts what an outbox holds.
func (s *secure) seal(o *outbox) error {
	for _, v := range o.vec[:o.n] {
		if _, err := s.tls.Write(vecBytes(v)); err != nil {
			return err
		}
	}
	return nil
}

// flush gives the socket as much as it takes, and tells whether it has taken anything.
func (s *secure) flush() (said bool, err error) {
	if !s.pending() {
		return false, nil
	}
	n, err := sys.Write(s.fd, s.sealed[s.sent:])
	if err != nil {
		return false, err
	}
	if s.sent += max(n, 0); s.sent == len(s.sealed) {
		s.sealed, s.sent = s.sealed[:0], 0
	}
	return n > 0, nil
}

// read is one read of plaintext, as of a raw socket: -1 for nothing yet, 0 for the end. Only the end of the connection ends it, also in the
// middle of a record: whether all has come, the Close frame says.
func (s *secure) read(b []byte) (int, error) {
	n, err := s.tls.Read(b)
	var code syscall.Errno
	switch {
	case n > 0 || err == nil:
		return n, nil // an error comes again
	case errors.Is(err, nothingYet{}):
		return -1, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil
	case errors.As(err, &code):
		return 0, err
	}
	return 0, fmt.Errorf("%w: %w", transport.ErrProtocol, err)
}

// transmitSecure writes frames until there are none, or the socket has no room. Frames are encrypted whole and count as sent when the
// socket has taken the last of them; so there is nothing to carry.
func (q *qp) transmitSecure() {
	o, s := &q.scq.out, q.secure
	for q.fd >= 0 {
		said, err := s.flush()
		if err != nil {
			q.lastWords()
			q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
			return
		}
		q.pulse.said = q.pulse.said || said
		if s.pending() {
			q.block()
			return
		}
		q.behind(q.at)
		if q.fd < 0 {
			return // that was the last of an orderly close
		}
		o.reset(q.checked)
		for o.bytes < sealMost && !o.full() && q.frame(o) {
		}
		if q.fd < 0 {
			return // a local error has ended the QP
		}
		if o.bytes == 0 {
			q.behind(q.at) // requests of no bytes have nothing to write
			q.unblock()
			return
		}
		o.seal()
		if err := s.seal(o); err != nil {
			q.fail(fmt.Errorf("%w: encrypting: %w", transport.ErrPeerLost, err), transport.StatusFatal)
			return
		}
	}
}

// receiveSecure places what has come, if anything has. When others are to have their turn it goes on only with what crypto/tls has read
// already, a few records at most: of that, no poller would tell.
func (q *qp) receiveSecure() (came bool) {
	s := q.secure
	defer func() {
		q.pulse.heard = q.pulse.heard || s.heard
		s.dry, s.heard = false, false
	}()
	for turn := 0; q.fd >= 0; turn++ {
		s.dry = turn >= readsAPass
		dst := q.direct()
		into := dst
		if dst == nil {
			into = q.rcq.staging
		}
		n, err := s.read(into)
		switch {
		case err != nil:
		case n < 0:
			return came
		case n == 0:
			err = fmt.Errorf("%w: the connection ended: %w", transport.ErrPeerLost, io.ErrUnexpectedEOF)
			q.fail(err, transport.StatusFatal)
			return true
		case dst != nil:
			if q.checked {
				q.in.sum = crc32.Update(q.in.sum, castagnoli, dst[:n])
			}
			q.advance(n)
		default:
			err = q.parse(into[:n])
		}
		if err != nil {
			q.receiveFailed(err)
			return true
		}
		came = true
	}
	return came
}

// tell writes a frame behind all others, if the socket takes them at once.
func (s *secure) tell(b []byte) {
	if _, err := s.tls.Write(b); err == nil {
		s.flush()
	}
}

// sayAlive is the queue pair's where it is encrypted: what the socket does not take goes out as other frames do.
func (s *secure) sayAlive(q *qp, frame []byte) {
	if _, err := s.tls.Write(frame); err == nil {
		q.transmitSecure()
	}
}

// encrypt begins TLS on a stream, as who begins the connection.
func (s *stream) encrypt(c *certificates, rank uint32) error {
	t := &secure{Conn: s.Conn, fd: -1}
	t.tls = tls.Client(t, c.initiator(rank))
	if err := t.tls.Handshake(); err != nil {
		return unprotected(err)
	}
	s.Conn, s.secure = t.tls, t
	return nil
}

// bothOrNeither is what to do about two ranks of which one encrypts.
const bothOrNeither = "WEFT_TLS must be the same for all ranks"

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// expectEncrypted begins TLS on a stream, as who is called. A peer that begins without gets to know what is wrong.
func (s *stream) expectEncrypted(c *certificates) error {
	first := make([]byte, 1)
	if err := s.full(first); err != nil {
		return err
	}
	s.read = 0
	s.Conn = &lead{s.Conn, first}
	if first[0] != recordHandshake {
		if hello, err := s.first(); err != nil {
			return err
		} else if _, err := parseHello(hello); err != nil {
			return err
		}
		s.reject(rejectOther, "connections are encrypted here, and yours is not: "+bothOrNeither)
		return fmt.Errorf("%w: it does not encrypt, and here connections are encrypted: %s", transport.ErrRefused, bothOrNeither)
	}
	t := &secure{Conn: s.Conn, fd: -1}
	t.tls = tls.Server(t, c.responder())
	if err := t.tls.Handshake(); err != nil {
		return unprotected(err)
	}
	rank, err := c.rankOf(t.tls.ConnectionState().PeerCertificates[0])
	if err != nil {
		return err
	}
	s.Conn, s.secure, s.proven = t.tls, t, int64(rank)
	return nil
}

// unprotected words the failure of a TLS handshake, or of the first read behind it, with which a responder's refusal comes.
func unprotected(err error) error {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &verification):
		return distrust(verification.Err)
	case errors.As(err, &header) && messageType(header.RecordHeader[0]) == typeReject:
		return fmt.Errorf("%w: it does not encrypt, and here connections are encrypted: %s", transport.ErrRefused, bothOrNeither)
	case errors.As(err, &header):
		return fmt.Errorf("%w: it begins with %q, which is no TLS", transport.ErrNotWeft, header.RecordHeader)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%w: it says %q", transport.ErrRefused, remote.Err)
	case errors.As(err, &remote), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, transport.ErrNotWeft), errors.Is(err, transport.ErrAuth):
		return err
	}
	return fmt.Errorf("%w: %w", transport.ErrNotWeft, err)
}
