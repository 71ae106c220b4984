package handshake

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/weft-mpi/weft/transport"
)

// Vanished describes the end of a connection during the handshake.
func Vanished(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the peer closed the connection during the handshake", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: the peer reset the connection during the handshake", transport.ErrPeerLost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: the peer does not answer during the handshake: %w", transport.ErrPeerLost,
			os.ErrDeadlineExceeded)
	}
	return err
}

// IsCut reports whether the peer has closed or reset the connection.
func IsCut(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
