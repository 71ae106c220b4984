package mpi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/transport"
)

// Kinds of failure, for errors.Is. Every error of this package is an *Error that wraps one of them, or a cause from below.
var (
	ErrTruncate       = engine.ErrTruncate                     // the message was longer than the buffer, which holds its beginning
	ErrRank           = errors.New("no such rank")             //
	ErrTag            = errors.New("invalid tag")              //
	ErrCount          = errors.New("invalid count")            // lengths or counts that do not fit together
	ErrBuffer         = engine.ErrBuffer                       // buffers that overlap where they must not, or that Free refuses
	ErrType           = errors.New("invalid element type")     // it has pointers, so it means nothing to another process
	ErrRoot           = errors.New("invalid root")             //
	ErrOp             = errors.New("invalid operator")         //
	ErrComm           = errors.New("invalid communicator")     // nil, or freed
	ErrRequest        = engine.ErrRequest                      // used up, or not in a state for the call
	ErrArg            = errors.New("invalid argument")         // of another kind
	ErrProcFailed     = engine.ErrProcFailed                   // a process that the operation needs is gone: ended, stopped or cut off; the cause is wrapped too
	ErrProtocol       = transport.ErrProtocol                  // with ErrProcFailed: the process was given up because a rule of the protocol was broken
	ErrRevoked        = errors.New("communicator was revoked") //
	ErrAborted        = engine.ErrAborted                      // the job is ending
	ErrNotInitialized = errors.New("Init has not been called") //
	ErrFinalized      = engine.ErrFinalized                    //
)

// Error tells which operation failed, on which communicator, with which peer and tag.
type Error struct {
	Op   string // "Send", "Allreduce", …
	Comm string // the communicator's name; empty where there is none
	Peer int    // rank in Comm; AnySource; NoPeer where the operation has none
	Tag  int    // AnyTag and NoPeer alike
	Err  error  // what went wrong
}

// NoPeer stands in Error where an operation has no peer or no tag.
const NoPeer = -3

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mpi: ")
	b.WriteString(e.Op)
	switch {
	case e.Peer == AnySource:
		b.WriteString(" from any source")
	case e.Peer != NoPeer:
		fmt.Fprintf(&b, " with rank %d", e.Peer)
	}
	if e.Tag >= 0 {
		fmt.Fprintf(&b, ", tag %d", e.Tag)
	}
	if e.Comm != "" {
		fmt.Fprintf(&b, ", on %s", e.Comm)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
