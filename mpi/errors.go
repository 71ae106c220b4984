package mpi

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/transport"
)

// Kinds of failure, for errors.Is. Every error of this package is an *Error that wraps one of them or a cause
// from a lower layer.
var (
	// the message was longer than the buffer; the buffer holds its beginning
	ErrTruncate   = engine.ErrTruncate
	ErrRank       = errors.New("no such rank") // a rank that the communicator, window or group does not have
	ErrTag        = errors.New("invalid tag")  // one below 0 or above TagUB, where it is no wildcard
	ErrCount      = engine.ErrCount            // lengths or counts that do not match
	ErrCollective = engine.ErrCollective       // collectives called in different orders on the communicator
	// buffers that overlap where they must not, or that Free refuses
	ErrBuffer = engine.ErrBuffer
	// an element type with pointers, which mean nothing to another process; a message that is no whole number
	// of the receive's elements; a value of another type
	ErrType    = engine.ErrType
	ErrRoot    = errors.New("invalid root")         // a root that the communicator does not have
	ErrOp      = errors.New("invalid operator")     // the zero Op, or one that the call does not take
	ErrComm    = errors.New("invalid communicator") // nil, or freed
	ErrRequest = engine.ErrRequest                  // already used, or not in a state for the call
	ErrArg     = errors.New("invalid argument")     // of any other kind
	ErrWin     = errors.New("invalid window")       // nil, or freed
	ErrRange   = errors.New("outside the window")   // elements that the target's part does not have
	// an operation on a window outside an epoch, or a synchronization call that does not match the previous
	// one
	ErrEpoch = errors.New("window synchronization")
	// a process that the operation needs is gone: it has ended, stopped or been cut off; the error wraps the
	// cause too
	ErrProcFailed = engine.ErrProcFailed
	// with ErrProcFailed: weft gave the process up because it broke a rule of the protocol
	ErrProtocol       = transport.ErrProtocol
	ErrRevoked        = engine.ErrRevoked                      // Revoke was called on the communicator
	ErrAborted        = engine.ErrAborted                      // the job is ending
	ErrNotInitialized = errors.New("Init has not been called") // or Run
	ErrFinalized      = engine.ErrFinalized                    // no call works any more
)

// Error reports which operation failed, at which rank, on which communicator, with which peer and tag.
type Error struct {
	Op   string // "Send", "Allreduce", …
	Comm string // the communicator's name; empty where there is none
	// this process's rank in Comm, or in the world where there is no Comm; NoPeer before Init
	Rank int
	// rank in Comm of the process that failed, or otherwise of the other end; AnySource; NoPeer if no peer is
	// known
	Peer int
	Tag  int   // may also be AnyTag or NoPeer
	Err  error // what went wrong

	onWindow bool // Comm is a window's own communicator

	world *worldRanks // nil if the world ranks are equal to Rank and Peer, or not known
}

// worldRanks has the world ranks of this process and of the peer of an Error; NoPeer if they are equal to
// those in Comm, or unknown.
type worldRanks struct{ rank, peer int }

// NoPeer is the Peer or Tag of an Error whose operation has none.
const NoPeer = -3

// Error names this process and the peer by their ranks in the communicator, and by their world ranks where
// those differ.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mpi: ")
	world := worldRanks{NoPeer, NoPeer}
	if e.world != nil {
		world = *e.world
	}
	if e.Rank >= 0 {
		fmt.Fprintf(&b, "rank %d", e.Rank)
		if world.rank >= 0 {
			fmt.Fprintf(&b, " (world rank %d)", world.rank)
		}
		b.WriteString(": ")
	}
	call := b.Len() + len(e.Op)
	b.WriteString(e.Op)
	switch {
	case e.Peer == AnySource && preposition(e.Op) == "to":
		b.WriteString(" to AnySource")
	case e.Peer == AnySource:
		b.WriteString(" from any source")
	case e.Peer != NoPeer:
		fmt.Fprintf(&b, " %s rank %d", preposition(e.Op), e.Peer)
	}
	if world.peer >= 0 {
		fmt.Fprintf(&b, " (world rank %d)", world.peer)
	}
	if e.Tag >= 0 {
		fmt.Fprintf(&b, ", tag %d", e.Tag)
	}
	if e.Comm != "" {
		if b.Len() > call {
			b.WriteByte(',')
		}
		b.WriteString(" on ")
		if e.onWindow {
			b.WriteString("window ")
		}
		b.WriteString(e.Comm)
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	return b.String()
}

// preposition returns the word between the name of a call and its peer.
func preposition(call string) string {
	switch {
	case strings.Contains(call, "endrecv"):
		return "with"
	case strings.Contains(call, "end"):
		return "to"
	case strings.Contains(call, "ecv"), strings.Contains(call, "robe"):
		return "from"
	}
	return "with"
}

// fail makes the error of an operation on the communicator. A peer and a tag that are not known may be those
// of the failed request, and a failed process is always the peer.
func (c *Comm) fail(op string, peer, tag int, err error) error {
	if err == nil {
		return nil
	}
	f := &Error{Op: op, Rank: process.number(), Peer: peer, Tag: tag, Err: err}
	var inner *Error // error of a call that this one makes
	if errors.As(err, &inner) {
		f.Err = inner.Err
		if peer == NoPeer {
			f.Peer, f.Tag = inner.Peer, inner.Tag
		}
	}
	if c == nil || c.commState == nil {
		return f
	}
	f.Comm, f.Rank, f.onWindow = c.Name(), c.rank, c.window.Load() != nil
	f.world = &worldRanks{NoPeer, NoPeer}
	if w := c.worldRank(c.rank); w != c.rank {
		f.world.rank = w
	}
	var request *engine.RequestError
	if errors.As(f.Err, &request) {
		if f.Err == error(request) {
			f.Err = request.Err
		}
		if f.Peer == NoPeer {
			f.Peer, f.Tag = c.localRank(request.Peer), request.Tag
		}
	}
	f.findPeer(c)
	if inner == nil || inner.Comm == "" { // else it has been reported
		c.checker.failed(f)
	}
	return f
}

// failColl makes the error of a collective operation. Its peer is the process that failed, if one did; it has
// no tag.
func (c *Comm) failColl(op string, err error) error {
	if err == nil {
		return nil
	}
	var request *engine.RequestError
	if errors.As(err, &request) && err == error(request) {
		err = request.Err
	}
	err = c.fail(op, NoPeer, NoPeer, err)
	if f, ok := err.(*Error); ok {
		f.Tag = NoPeer // a tag of its messages says nothing to the program
	}
	return err
}

// findPeer makes the process that failed the peer, or the sender of the message that has no room.
func (e *Error) findPeer(c *Comm) {
	var long *engine.TruncateError
	if errors.As(e.Err, &long) && c.isMember(long.Source) {
		e.Peer, e.Tag = c.localRank(long.Source), long.Tag
	}
	var partial *engine.PartialError
	if errors.As(e.Err, &partial) && c.isMember(partial.Source) {
		e.Peer, e.Tag = c.localRank(partial.Source), partial.Tag
	}
	var failed *engine.PeerError
	if errors.As(e.Err, &failed) && c.isMember(failed.Rank) {
		e.Peer = c.localRank(failed.Rank)
	}
	if e.Peer >= 0 && e.Peer < c.size && c.worldRank(e.Peer) != e.Peer {
		e.world.peer = c.worldRank(e.Peer)
	}
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
