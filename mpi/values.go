package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/value"
)

// SendValue sends one value of any Go type to rank dst: a string, a slice, a map, or a struct that contains
// them. RecvValue receives it, into the same type; another type gives ErrType there, and so does a receive of
// elements of an even size.
//
// A value of fixed size without pointers is sent as its memory, a slice of such values as its elements, and
// any other value in encoding/gob. A nil slice arrives as an empty one. The calls on values allocate, and
// copy more than once: they are meant for set-up and results, not for the inner loop.
//
// A type that would arrive incomplete is refused with ErrType: one with a channel, a function or an
// unexported field, unless the type encodes itself (gob.GobEncoder, encoding.BinaryMarshaler). Unexported
// fields are allowed only if the type has a fixed size and no pointers. A value that refers to itself is
// refused as well. A value in an interface needs gob.Register.
func SendValue[T any](c *Comm, v T, dst, tag int) error {
	b, err := valueBuffer(c, &v, dst, tag)
	if err == nil {
		err = c.send(&b, dst, tag, false)
	}
	return c.fail("SendValue", dst, tag, err)
}

// valueBuffer encodes a value as a message to a rank.
func valueBuffer[T any](c *Comm, v *T, dst, tag int) (b buffer, err error) {
	if err = c.checkSend(dst, tag); err != nil {
		return b, err
	}
	if b.bytes, err = value.Message(v); err == nil {
		b.element = value.Of[T]().Element
	}
	return b, err
}

// RecvValue receives a value that SendValue sent, from rank src, or AnySource, with tag, or AnyTag. From
// ProcNull it returns the zero value. Status.Count is 1, and Status.Bytes the length of the message. A
// message that is no value of type T gives ErrType.
func RecvValue[T any](c *Comm, src, tag int) (T, Status, error) {
	r, err := irecvValue[T](c, src, tag)
	if err != nil {
		var none T
		return none, Status{}, c.fail("RecvValue", src, tag, err)
	}
	return r.wait("RecvValue")
}

// IsendValue begins a SendValue. The value is encoded before IsendValue returns, so it may be changed at
// once.
func IsendValue[T any](c *Comm, v T, dst, tag int) (Request, error) {
	b, err := valueBuffer(c, &v, dst, tag)
	var r Request
	if err == nil {
		r, err = c.isend(&b, dst, tag, false)
	}
	if err != nil {
		return Request{}, c.fail("IsendValue", dst, tag, err)
	}
	return r, nil
}

// ValueRequest is a RecvValue under way. It is a small value that may be copied freely.
type ValueRequest[T any] struct {
	request  Request
	message  *engine.Sized
	src, tag int
}

// IrecvValue begins a RecvValue. The Wait or Test of its request returns the value.
func IrecvValue[T any](c *Comm, src, tag int) (ValueRequest[T], error) {
	r, err := irecvValue[T](c, src, tag)
	if err != nil {
		return ValueRequest[T]{}, c.fail("IrecvValue", src, tag, err)
	}
	return r, nil
}

func irecvValue[T any](c *Comm, src, tag int) (ValueRequest[T], error) {
	m := &engine.Sized{Limit: mostBytes()}
	r, err := c.irecv(&buffer{sized: m, element: value.Of[T]().Element, elem: 1}, src, tag)
	return ValueRequest[T]{r, m, src, tag}, err
}

// Wait returns the value when it has arrived. It uses the request up: another Wait gives ErrRequest.
func (r ValueRequest[T]) Wait() (T, Status, error) { return r.wait("Wait") }

func (r ValueRequest[T]) wait(op string) (T, Status, error) {
	st, err := r.request.wait(op)
	return r.open(op, st, err)
}

// Test reports whether the value has arrived, and returns it if so. It does not block.
func (r ValueRequest[T]) Test() (v T, st Status, ok bool, err error) {
	if st, ok, err = r.request.Test(); ok || err != nil {
		v, st, err = r.open("Test", st, err)
	}
	return v, st, ok, err
}

// Cancel cancels the receive, as Request.Cancel does. Then Wait returns the zero value, and Status.Cancelled
// reports whether nothing was received.
func (r ValueRequest[T]) Cancel() error { return r.request.Cancel() }

// open decodes the value of a received message.
func (r ValueRequest[T]) open(op string, st Status, err error) (v T, _ Status, _ error) {
	c := r.request.c
	if c == nil || err == nil && (st.Source == ProcNull || st.Cancelled()) {
		return v, st, nil
	}
	if err == nil {
		if err = value.Open(r.message.Bytes, &v); err != nil && c.checker != nil && st.Bytes() > 0 {
			err = fmt.Errorf("%w: %w", errChecked, err) // already reported as a message of another type
		}
		r.src, r.tag = st.Source, st.Tag
	}
	st.Count = 1
	if err != nil {
		st.Count = 0
		return v, st, c.fail(op, r.src, r.tag, err)
	}
	return v, st, nil
}

// SendrecvValue sends v to dst and receives a value of the same type from src at the same time, so ranks in a
// ring may all call it without deadlock. If only the send fails, the status says what was received all the
// same; Status.Cancelled, that nothing was.
func SendrecvValue[T any](c *Comm, v T, dst, stag, src, rtag int) (T, Status, error) {
	var none T
	b, err := valueBuffer(c, &v, dst, stag) // before the receive can take a message
	if err != nil {
		return none, Status{}, c.fail("SendrecvValue", dst, stag, err)
	}
	r, err := irecvValue[T](c, src, rtag)
	if err != nil {
		return none, Status{}, c.fail("SendrecvValue", src, rtag, err)
	}
	s, serr := c.isend(&b, dst, stag, false)
	if serr != nil {
		_ = r.Cancel() // nothing may answer it
		got, st, _ := r.Wait()
		return got, st, c.fail("SendrecvValue", dst, stag, serr)
	}
	got, st, err := r.wait("SendrecvValue")
	if _, serr := s.wait("SendrecvValue"); err == nil && serr != nil {
		return got, st, c.fail("SendrecvValue", dst, stag, serr)
	}
	return got, st, err
}
