// Package violation defines the reasons for which an end cuts a queue pair's connection, mostly a wrong
// message of the peer, and the errors that the two ends report.
package violation

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
)

// Reason is why a connection is cut.
type Reason uint8

// The numbers are those of a Terminate over shared memory.
const (
	Local    Reason = iota + 1 // an error at this end, not the peer's doing
	Access                     // key, domain, right or bounds
	Protocol                   // another rule was broken
	NoRecv                     // a message found no Recv
	Reads                      // too many Reads
	TooLong                    // a message was longer than its Recv
	Own                        // this end's own request named peer memory that it may not access
	Checksum                   // bytes were changed on the way
)

func (r Reason) String() string {
	names := [...]string{"", "local error", "access refused", "protocol violation",
		"no Recv", "too many Reads", "message too long", "own request refused", "checksum wrong"}
	if int(r) < len(names) && r > 0 {
		return names[r]
	}
	return fmt.Sprintf("code %d", uint8(r))
}

// SeenByPeer returns what the end that receives the reason reports: the status of its request that was
// refused, and the cause.
func (r Reason) SeenByPeer() (status transport.Status, cause error) {
	switch r {
	case Access, Own:
		return transport.StatusRemoteAccess, transport.ErrAccess
	case Local:
		return transport.StatusRemoteOp, transport.ErrPeerLost
	case NoRecv:
		return transport.StatusRNR, transport.ErrProtocol
	}
	return transport.StatusRemoteOp, transport.ErrProtocol
}

// Of returns the reason of an error that cuts a connection.
func Of(cause error) Reason {
	var v *Error
	switch {
	case errors.As(cause, &v):
		return v.Reason
	case errors.Is(cause, transport.ErrProtocol):
		return Protocol
	}
	return Local
}

// Error is an error with the reason that is sent to the peer.
type Error struct {
	Reason Reason
	Status transport.Status // of the receive that it ends, if any
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrNoRecv is the error of a message that comes before the receiver has posted a Recv for it.
var ErrNoRecv error = &Error{Reason: NoRecv,
	Err: fmt.Errorf("%w: a message of the peer found no Recv posted", transport.ErrProtocol)}

// ErrRecvGone is the error of a message for a Recv whose region has been deregistered.
var ErrRecvGone error = &Error{Reason: NoRecv, Status: transport.StatusLocalProt,
	Err: fmt.Errorf("%w: the region of a posted Recv was deregistered", transport.ErrInvalid)}

// ErrTooLong returns the error of a message that is longer than its Recv.
func ErrTooLong(room int) error {
	return &Error{Reason: TooLong, Status: transport.StatusLocalLength,
		Err: fmt.Errorf("%w: a message of the peer is longer than the posted Recv of %d bytes",
			transport.ErrProtocol, room)}
}

// ErrReads returns the error of a Read or an Atomic beyond those that may be outstanding.
func ErrReads(limit int) error {
	return &Error{Reason: Reads, Err: fmt.Errorf("%w: more Reads and Atomics outstanding than agreed: %d",
		transport.ErrProtocol, limit)}
}

// ErrWrite returns the error of a Write that may not be placed.
func ErrWrite(err error) error {
	return &Error{Reason: Access, Err: fmt.Errorf("Write from the peer: %w", err)}
}
