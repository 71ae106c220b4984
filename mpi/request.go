package mpi

import (
	"errors"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Request is an operation under way: a small value, free to copy. The zero Request is complete. A request is used up by the
// first Wait, or the first Test that finds it complete; after that it gives ErrRequest.
type Request struct {
	h    engine.Request
	null bool // a receive from ProcNull: complete, with ProcNull's status
}

// Status tells what a receive got (MPI 4.1, 3.2.5).
type Status struct {
	Source int // rank in the communicator
	Tag    int
	Count  int // in elements of the receive's type; of a message cut off by ErrTruncate, what is in the buffer

	bytes int
}

// Bytes is the size of the message in bytes; of a message cut off by ErrTruncate, what is in the buffer.
func (s Status) Bytes() int { return s.bytes }

func statusOf(s engine.Status) Status {
	if s.Elem == 0 {
		return Status{}
	}
	return Status{Source: s.Source, Tag: s.Tag, Count: s.Bytes / s.Elem, bytes: s.Bytes}
}

func nullStatus() Status {
	return Status{Source: ProcNull, Tag: AnyTag}
}

// Wait returns when the operation is complete, with its status and its error (MPI 4.1, 3.7.3). It drives all of the rank's
// communication meanwhile.
func (r Request) Wait() (Status, error) {
	e, err := r.engine()
	if err != nil || e == nil {
		return r.nullStatus(), err
	}
	st, err := e.Wait(r.h)
	return statusOf(st), asError("Wait", err)
}

// Test tells whether the operation is complete, and its status and error if so. It does not block.
func (r Request) Test() (Status, bool, error) {
	e, err := r.engine()
	if err != nil || e == nil {
		return r.nullStatus(), err == nil, err
	}
	st, ok, err := e.Test(r.h)
	return statusOf(st), ok, asError("Test", err)
}

// Waitall waits for every request, whatever becomes of the others, and returns the first failure by index. Every request is
// used up afterwards.
func Waitall(rs []Request) error {
	var first error
	for _, r := range rs {
		if _, err := r.Wait(); err != nil && first == nil {
			first = asError("Waitall", err)
		}
	}
	return first
}

func (r Request) nullStatus() Status {
	if r.null {
		return nullStatus()
	}
	return Status{}
}

// engine is the engine that the request lives in; nil for a request that is complete by itself.
func (r Request) engine() (*engine.Engine, error) {
	if !r.h.Active() {
		return nil, nil
	}
	e := current.Load()
	if e == nil {
		return nil, asError("Wait", ErrNotInitialized)
	}
	return e, nil
}

// asError gives an error from below the shape of this package's errors.
func asError(op string, err error) error {
	if err == nil {
		return nil // before e: it escapes
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Peer: NoPeer, Tag: NoPeer, Err: err}
}
