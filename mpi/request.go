package mpi

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Request is an operation under way. It is a small value that may be copied freely. The zero Request is
// complete; MPI calls it inactive. The first Wait, the first Test that finds it complete, or one of the calls
// for several requests uses a request up; after that, every copy of it gives ErrRequest. Only one goroutine
// at a time should wait for a request; if several do, one gets the result and the others get ErrRequest.
type Request struct {
	h engine.Request
	c *Comm
}

// Status describes what a receive got (MPI 4.1, 3.2.5).
type Status struct {
	Source int // rank in the communicator
	Tag    int
	// in elements of the receive's type, and in bytes after a probe, which has none; for a message cut off by
	// ErrTruncate, what is in the buffer
	Count int

	bytes     int
	cancelled bool
	err       error
}

// Bytes returns the size of the message in bytes; for a message cut off by ErrTruncate, what is in the
// buffer.
func (s Status) Bytes() int { return s.bytes }

// Cancelled reports that Request.Cancel withdrew the operation: nothing was sent and nothing received (MPI
// 4.1, 3.8.4).
func (s Status) Cancelled() bool { return s.cancelled }

// Err returns the error of this operation. It is set in the statuses that WaitallStatus and the other calls
// for several requests return (MPI 4.1, 3.7.5, MPI_ERR_IN_STATUS).
func (s Status) Err() error { return s.err }

// String returns the status for people, as "source 1, tag 5, count 3, bytes 24"; "cancelled"; or "no message"
// for a send, an inactive request, and a receive from ProcNull. The error of Err follows after a colon.
func (s Status) String() string {
	text := fmt.Sprintf("source %d, tag %d, count %d, bytes %d", s.Source, s.Tag, s.Count, s.bytes)
	switch {
	case s.cancelled:
		text = "cancelled"
	case s.Source < 0:
		text = "no message"
	}
	if s.err != nil {
		text += ": " + s.err.Error()
	}
	return text
}

// emptyStatus is the status of an inactive request (MPI 4.1, 3.7.3), and of a send.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// statusOf converts a status of the engine, whose source is a world rank, to one of the communicator.
func (c *Comm) statusOf(s engine.Status) Status {
	if s.Elem == 0 {
		st := emptyStatus
		st.cancelled = s.Cancelled
		return st
	}
	if c.checker != nil {
		s.Bytes = max(0, s.Bytes-check.HeaderSize)
	}
	count := s.Bytes
	if s.Elem > 1 {
		count /= s.Elem
	}
	return Status{
		Source: c.localRank(s.Source), Tag: s.Tag, Count: count, bytes: s.Bytes, cancelled: s.Cancelled,
	}
}

func nullStatus() Status {
	return Status{Source: ProcNull, Tag: AnyTag}
}

// Wait returns when the operation is complete, with its status and its error (MPI 4.1, 3.7.3). It drives all
// of the rank's communication while it waits. It ends early with the context of the handle that began the
// operation (see Comm.WithContext).
func (r Request) Wait() (Status, error) { return r.wait("Wait") }

func (r Request) wait(op string) (Status, error) {
	if r.c == nil {
		return emptyStatus, nil
	}
	st, err := r.c.e.Requests.Wait(r.h)
	r.c.checker.waitedFor(r.c, r.h, &st, err)
	if err != nil {
		err = r.c.fail(op, NoPeer, NoPeer, err)
	}
	return r.c.statusOf(st), err
}

// Test reports whether the operation is complete, with its status and error if so. It does not block.
func (r Request) Test() (Status, bool, error) {
	if r.c == nil {
		return emptyStatus, true, nil
	}
	st, ok, err := r.c.e.Requests.Test(r.h)
	if ok {
		r.c.checker.waitedFor(r.c, r.h, &st, err)
	}
	if err != nil {
		err = r.c.fail("Test", NoPeer, NoPeer, err)
	}
	return r.c.statusOf(st), ok, err
}

// RequestStatus reports whether the operation is complete, with its status and error if so, as Test does, but
// does not use the request up (MPI 4.1, 3.7.6, MPI_Request_get_status): the program must still wait for it,
// and gets the same result. RequestStatus does not block.
func RequestStatus(r Request) (Status, bool, error) {
	if r.c == nil {
		return emptyStatus, true, nil
	}
	st, ok, err := r.c.e.Requests.Look(r.h)
	if ok {
		r.c.checker.completed(r.c, r.h, &st, err)
	}
	if err != nil {
		err = r.c.fail("RequestStatus", NoPeer, NoPeer, err)
	}
	return r.c.statusOf(st), ok, err
}

// withdraw ends a receive that may never get a message, and returns its status, which is cancelled if it has
// got none.
func (r Request) withdraw() Status {
	st, err := emptyStatus, r.Cancel()
	if err == nil {
		st, err = r.wait("Wait")
	}
	if err != nil && !errors.Is(err, ErrTruncate) {
		st = emptyStatus
		st.cancelled = true
	}
	return st
}

// Cancel cancels an operation that has not been matched (MPI 4.1, 3.8.4): a receive without a message, or a
// send whose message no receive and no matched probe has taken. No probe or receive finds the message of a
// cancelled send. An operation that was matched completes as if Cancel had not been called, with its status
// and its error. In both cases the program must still wait for the request; Status.Cancelled says whether it
// was cancelled. Cancel does nothing to a request that is already complete; a small send completes at once.
//
// A Wait after Cancel of a send does not depend on what the program at the receiver does, only on the
// receiver's rank making progress.
//
// When Cancel of a receive returns, weft no longer writes to its buffer: if the message is on its way, Cancel
// blocks until it has arrived. Cancel of a send does not block; the buffer belongs to weft until Wait
// returns.
func (r Request) Cancel() error {
	if r.c == nil {
		return nil
	}
	if err := r.c.e.Cancels.Cancel(r.h); err != nil {
		return r.c.fail("Cancel", NoPeer, NoPeer, err)
	}
	return nil
}

// asError returns the error of an operation that belongs to no communicator, or to the world.
func asError(op string, err error) error {
	if err == nil {
		return nil // before e: it escapes
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	peer := NoPeer
	var failed *engine.PeerError
	if errors.As(err, &failed) {
		peer = failed.Rank
	}
	return &Error{Op: op, Rank: process.number(), Peer: peer, Tag: NoPeer, Err: err}
}
