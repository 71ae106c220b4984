package setup

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
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// Encrypt runs the client side of TLS, and requires that the server be a rank.
func Encrypt(conn net.Conn, c *certificates.Job, rank uint32) (*link.Session, error) {
	s := link.NewSession(conn)
	s.TLS = tls.Client(s.Records(), c.Initiator(rank))
	if err := s.TLS.Handshake(); err != nil {
		return nil, unprotected(err)
	}
	return s, nil
}

// bothOrNeither is the advice when only one of two ranks encrypts.
const bothOrNeither = "WEFT_TLS must be the same for all ranks"

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 22

// expectEncrypted runs the server side of TLS. It sends a Reject to a peer that does not encrypt. named is
// called when the peer has asked for this rank of this job by name.
func (h *Handshake) expectEncrypted(named func()) error {
	first := make([]byte, 1)
	if err := h.ReadFull(first); err != nil {
		return err
	}
	h.read = 0
	h.conn = &lead{h.conn, first}
	if first[0] != recordHandshake {
		if hello, err := h.first(); err != nil {
			return err
		} else if _, err := message.ParseHello(hello); err != nil {
			return err
		}
		h.Reject(handshake.RejectOther, "connections are encrypted here, and yours is not: "+bothOrNeither)
		return fmt.Errorf("%w: the peer does not encrypt, and here connections are encrypted: %s",
			transport.ErrRefused, bothOrNeither)
	}
	c, s := h.local.Certificates, link.NewSession(h.conn)
	conf := c.Responder()
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != c.Name(h.local.ID.Rank) {
			return nil, fmt.Errorf("%w: its ClientHello asks for %.80q, which is not this rank of this job",
				transport.ErrRefused, hello.ServerName)
		}
		named()
		return nil, nil
	}
	s.TLS = tls.Server(s.Records(), conf)
	if err := s.TLS.Handshake(); err != nil {
		return unprotected(err)
	}
	rank, err := c.RankOf(s.TLS.ConnectionState().PeerCertificates[0])
	if err != nil {
		return err
	}
	h.conn, h.session, h.certified = s.TLS, s, int64(rank)
	return nil
}

// internalError is the alert with which crypto/tls refuses a ClientHello for another name.
const internalError = tls.AlertError(80)

// unprotected describes the failure of a TLS handshake, or of the first read after it, which may return a
// responder's refusal.
func unprotected(err error) error {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var remote *net.OpError
	switch {
	case errors.As(err, &verification):
		return certificates.Distrust(verification.Err)
	case errors.As(err, &header) && message.Type(header.RecordHeader[0]) == message.Reject:
		return unencryptedReject(header.RecordHeader)
	case errors.As(err, &header):
		return fmt.Errorf("%w: the connection begins with %q, which is not TLS", transport.ErrNotWeft,
			header.RecordHeader)
	case errors.As(err, &remote) && remote.Op == "remote error" &&
		remote.Err.Error() == internalError.Error():
		return fmt.Errorf("%w: the peer says %q: it may belong to another job", transport.ErrRefused,
			remote.Err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("%w: the peer says %q", transport.ErrRefused, remote.Err)
	case errors.As(err, &remote), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, transport.ErrNotWeft), errors.Is(err, transport.ErrAuth),
		errors.Is(err, transport.ErrRefused):
		return err
	}
	return fmt.Errorf("%w: %w", transport.ErrNotWeft, err)
}

// unencryptedReject returns the error of a Reject in place of a TLS record. head is its first five bytes, up
// to its code, as crypto/tls returns them: a responder without time for a TLS handshake rejects without one.
func unencryptedReject(head [message.PrefixSize + 1]byte) error {
	if _, n, err := message.ParsePrefix(head[:]); err == nil && n > 0 &&
		handshake.RejectCode(head[message.PrefixSize]) == handshake.RejectBusy {
		return cm.ErrBusy
	}
	return fmt.Errorf("%w: the peer does not encrypt, and here connections are encrypted: %s",
		transport.ErrRefused, bothOrNeither)
}
