package mpi

import "github.com/weft-mpi/weft/mpi/internal/engine"

// Send sends buf to rank dst and returns when buf may be used again, which may be before the receiver has it (MPI 4.1, 3.2.1).
// T must have a fixed size and no pointers. A nil buf is a message of no elements.
func Send[T any](c *Comm, buf []T, dst, tag int) error {
	b, err := bytesOf(buf)
	if err == nil && dst == ProcNull {
		err = c.check()
		if err == nil {
			return nil
		}
	}
	if err == nil {
		err = c.checkSend(dst, tag)
	}
	if err == nil {
		err = c.e.Send(c.context, b, dst, tag)
	}
	if err != nil {
		return c.fail("Send", dst, tag, err)
	}
	return nil
}

// Recv receives a message from rank src, or AnySource, with tag, or AnyTag, into buf, and returns when it is there (MPI 4.1,
// 3.2.4). A message longer than buf fills it and gives ErrTruncate; a shorter one leaves the rest as it was: Status.Count tells.
func Recv[T any](c *Comm, buf []T, src, tag int) (Status, error) {
	b, err := bytesOf(buf)
	if err == nil && src == ProcNull {
		err = c.check()
		if err == nil {
			return nullStatus(), nil
		}
	}
	if err == nil {
		err = c.checkRecv(src, tag)
	}
	var st engine.Status
	if err == nil {
		st, err = c.e.Recv(c.context, b, src, tag, sizeOf[T]())
	}
	if err != nil {
		return statusOf(st), c.fail("Recv", src, tag, err)
	}
	return statusOf(st), nil
}

// Sendrecv sends sbuf to dst and receives rbuf from src, both at once, so that ranks may do it in a ring without deadlock
// (MPI 4.1, 3.10). The buffers must not overlap.
func Sendrecv[T, U any](c *Comm, sbuf []T, dst, stag int, rbuf []U, src, rtag int) (Status, error) {
	r, err := irecv(c, "Sendrecv", rbuf, src, rtag)
	if err != nil {
		return Status{}, err
	}
	s, serr := isend(c, "Sendrecv", sbuf, dst, stag)
	if serr != nil {
		c.e.Abandon(r.h) // nothing will answer it
		return Status{}, serr
	}
	st, err := r.Wait()
	if _, serr := s.Wait(); err == nil && serr != nil {
		return st, c.fail("Sendrecv", dst, stag, serr)
	}
	if err != nil {
		return st, c.fail("Sendrecv", src, rtag, err)
	}
	return st, nil
}

// Isend begins a send (MPI 4.1, 3.7.2). buf must not be changed until the request is complete.
func Isend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	return isend(c, "Isend", buf, dst, tag)
}

// Irecv begins a receive (MPI 4.1, 3.7.2). buf belongs to weft until the request is complete.
func Irecv[T any](c *Comm, buf []T, src, tag int) (Request, error) {
	return irecv(c, "Irecv", buf, src, tag)
}

func isend[T any](c *Comm, op string, buf []T, dst, tag int) (Request, error) {
	b, err := bytesOf(buf)
	if err == nil && dst == ProcNull {
		err = c.check()
		if err == nil {
			return Request{}, nil
		}
	}
	if err == nil {
		err = c.checkSend(dst, tag)
	}
	var h engine.Request
	if err == nil {
		h, err = c.e.Isend(c.context, b, dst, tag)
	}
	if err != nil {
		return Request{}, c.fail(op, dst, tag, err)
	}
	return Request{h: h}, nil
}

func irecv[T any](c *Comm, op string, buf []T, src, tag int) (Request, error) {
	b, err := bytesOf(buf)
	if err == nil && src == ProcNull {
		err = c.check()
		if err == nil {
			return Request{null: true}, nil
		}
	}
	if err == nil {
		err = c.checkRecv(src, tag)
	}
	var h engine.Request
	if err == nil {
		h, err = c.e.Irecv(c.context, b, src, tag, sizeOf[T]())
	}
	if err != nil {
		return Request{}, c.fail(op, src, tag, err)
	}
	return Request{h: h}, nil
}
