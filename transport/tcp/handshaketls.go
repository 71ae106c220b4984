package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
)

// encrypt begins TLS on a stream, as who begins the connection.
func (s *stream) encrypt(c *certificates, rank uint32) error {
	t := link.NewSession(s.Conn)
	t.TLS = tls.Client(t.Records(), c.initiator(rank))
	if err := t.TLS.Handshake(); err != nil {
		return unprotected(err)
	}
	s.Conn, s.session = t.TLS, t
	return nil
}

// bothOrNeither is what to do about two ranks of which one encrypts.
const bothOrNeither = "WEFT_TLS must be the same for all ranks"

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// expectEncrypted begins TLS on a stream, as who is called. A peer that begins without gets to know what is
// wrong. named is called when the peer has asked for this rank of this job by name.
func (s *stream) expectEncrypted(c *certificates, named func()) error {
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
		s.reject(handshake.RejectOther, "connections are encrypted here, and yours is not: "+bothOrNeither)
		return fmt.Errorf("%w: it does not encrypt, and here connections are encrypted: %s",
			transport.ErrRefused, bothOrNeither)
	}
	t := link.NewSession(s.Conn)
	conf := c.responder()
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != c.name(c.rank) {
			return nil, fmt.Errorf("%w: its ClientHello asks for %.80q, which is not this rank of this job",
				transport.ErrRefused, hello.ServerName)
		}
		named()
		return nil, nil
	}
	t.TLS = tls.Server(t.Records(), conf)
	if err := t.TLS.Handshake(); err != nil {
		return unprotected(err)
	}
	rank, err := c.rankOf(t.TLS.ConnectionState().PeerCertificates[0])
	if err != nil {
		return err
	}
	s.Conn, s.session, s.proven = t.TLS, t, int64(rank)
	return nil
}

// internalError is the alert with which crypto/tls refuses a ClientHello that asks for another name.
const internalError = tls.AlertError(80)

// unprotected words the failure of a TLS handshake, or of the first read after it, with which a responder's
// refusal comes.
func unprotected(err error) error {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &verification):
		return distrust(verification.Err)
	case errors.As(err, &header) && messageType(header.RecordHeader[0]) == typeReject:
		return unencryptedReject(header.RecordHeader)
	case errors.As(err, &header):
		return fmt.Errorf("%w: it begins with %q, which is no TLS", transport.ErrNotWeft, header.RecordHeader)
	case errors.As(err, &remote) && remote.Op == "remote error" &&
		remote.Err.Error() == internalError.Error():
		return fmt.Errorf("%w: it says %q: it may be of another job", transport.ErrRefused, remote.Err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%w: it says %q", transport.ErrRefused, remote.Err)
	case errors.As(err, &remote), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, transport.ErrNotWeft), errors.Is(err, transport.ErrAuth),
		errors.Is(err, transport.ErrRefused):
		return err
	}
	return fmt.Errorf("%w: %w", transport.ErrNotWeft, err)
}

// unencryptedReject is what a Reject says that comes in the place of a TLS record. crypto/tls gives its first
// five bytes, which is up to its code: a responder that has no time for a handshake says so outside of it.
func unencryptedReject(head [prefixSize + 1]byte) error {
	if _, n, err := parsePrefix(head[:]); err == nil && n > 0 &&
		handshake.RejectCode(head[prefixSize]) == handshake.RejectBusy {
		return cm.ErrBusy
	}
	return fmt.Errorf("%w: it does not encrypt, and here connections are encrypted: %s",
		transport.ErrRefused, bothOrNeither)
}
