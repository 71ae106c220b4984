package mpi

import (
	"cmp"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Send sends buf to rank dst (MPI 4.1, 3.2.1). It returns when buf may be reused, which may be before the
// receiver has the message. T must have a fixed size and no pointers. A nil buf is a message of no elements.
func Send[T any](c *Comm, buf []T, dst, tag int) error {
	var err error
	if lastKnown[T]() && c.fastPathOK(dst, tag) {
		err = c.e.Send(c.context, memory(buf), c.worldRank(dst), tag)
	} else {
		err = send(c, buf, dst, tag, false)
	}
	if err != nil {
		return c.fail("Send", dst, tag, err)
	}
	return nil
}

// send is a send that is looked at in full first.
func send[T any](c *Comm, buf []T, dst, tag int, sync bool) error {
	b, err := bytesOf(buf)
	if err != nil {
		return err
	}
	return c.send(b, elementOf[T](c), dst, tag, sync)
}

// Ssend is Send, but returns only when the receiver has begun to receive the message (MPI 4.1, 3.4).
func Ssend[T any](c *Comm, buf []T, dst, tag int) error {
	if err := send(c, buf, dst, tag, true); err != nil {
		return c.fail("Ssend", dst, tag, err)
	}
	return nil
}

// Recv receives a message from rank src, or AnySource, with tag, or AnyTag, into buf, and returns when the
// message has arrived (MPI 4.1, 3.2.4). A message longer than buf fills buf and gives ErrTruncate. A shorter
// message leaves the rest of buf unchanged; Status.Count says how many elements arrived. A message that is no
// whole number of elements gives ErrType, as with every receive; then buf holds its bytes.
func Recv[T any](c *Comm, buf []T, src, tag int) (Status, error) {
	if lastKnown[T]() && c.fastPathOK(src, tag) {
		var st engine.Status
		err := c.e.Recv(c.context, memory(buf), c.worldRank(src), tag, sizeOf[T](), &st)
		if err == nil {
			return Status{Source: src, Tag: tag, Count: st.Bytes / sizeOf[T](), bytes: st.Bytes}, nil
		}
		return c.statusOf(st), c.fail("Recv", src, tag, err)
	}
	b, err := bytesOf(buf)
	var st Status
	if err == nil {
		st, err = c.recv(b, elementOf[T](c), src, tag, sizeOf[T]())
	}
	if err != nil {
		return st, c.fail("Recv", src, tag, err)
	}
	return st, nil
}

// Sendrecv sends sbuf to dst and receives rbuf from src at the same time, so ranks in a ring may all call it
// without deadlock (MPI 4.1, 3.10). The buffers must not overlap. If only the send fails, the status says
// what was received all the same; Status.Cancelled, that nothing was.
func Sendrecv[T, U any](c *Comm, sbuf []T, dst, stag int, rbuf []U, src, rtag int) (Status, error) {
	_, err := bytesOf(sbuf)
	if err == nil {
		err = c.checkSend(dst, stag) // before the receive can take a message
	}
	if err != nil {
		return Status{}, c.fail("Sendrecv", dst, stag, err)
	}
	r, err := irecv(c, "Sendrecv", rbuf, src, rtag)
	if err != nil {
		return Status{}, err
	}
	s, serr := isend(c, "Sendrecv", sbuf, dst, stag, false)
	if serr != nil {
		return r.withdraw(), serr
	}
	st, err := r.wait("Sendrecv")
	if _, serr := s.wait("Sendrecv"); err == nil && serr != nil {
		return st, c.fail("Sendrecv", dst, stag, serr)
	}
	if err != nil {
		return st, c.fail("Sendrecv", src, rtag, err)
	}
	return st, nil
}

// SendrecvReplace is Sendrecv with one buffer: the message that is received takes the place of the one that
// is sent (MPI 4.1, 3.10). The two go on independently of each other. So unless the send completes at once,
// the incoming message needs memory besides buf: as many bytes as it has, at most those of buf. If that send
// fails, or the receive gets no message, buf is unchanged.
func SendrecvReplace[T any](c *Comm, buf []T, dst, stag, src, rtag int) (Status, error) {
	const op = "SendrecvReplace"
	b, err := bytesOf(buf)
	if err == nil {
		err = c.checkRecv(src, rtag) // before a message is sent
	}
	if err != nil {
		return Status{}, c.fail(op, src, rtag, err)
	}
	s, err := isend(c, op, buf, dst, stag, false)
	if err != nil {
		return Status{}, err
	}
	element, elem := elementOf[T](c), sizeOf[T]()
	if _, done, err := s.Test(); done {
		if err != nil {
			return Status{}, c.fail(op, dst, stag, err)
		}
		st, err := c.recv(b, element, src, rtag, elem)
		return st, c.fail(op, src, rtag, err)
	}
	in := &engine.Sized{Limit: len(b), Cut: true}
	r, err := c.irecvSized(in, element, src, rtag, elem)
	if err != nil {
		_ = s.Cancel()
		_, _ = s.wait(op)
		return Status{}, c.fail(op, src, rtag, err)
	}
	st, err := r.wait(op)
	if _, serr := s.wait(op); serr != nil {
		return st, c.fail(op, dst, stag, cmp.Or(err, serr))
	}
	copy(b, in.Bytes)
	return st, c.fail(op, src, rtag, err)
}

// Isend begins a send (MPI 4.1, 3.7.2). buf must not be changed until the request is complete.
func Isend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if lastKnown[T]() && c.fastPathOK(dst, tag) {
		if h, err := c.e.Isend(c.context, memory(buf), c.worldRank(dst), tag); err == nil {
			return Request{h, c}, nil
		} else {
			return Request{}, c.fail("Isend", dst, tag, err)
		}
	}
	return isend(c, "Isend", buf, dst, tag, false)
}

// Issend begins a send that is complete only when the receiver has begun to receive the message (MPI 4.1,
// 3.7.2). buf must not be changed until the request is complete.
func Issend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	return isend(c, "Issend", buf, dst, tag, true)
}

// Irecv begins a receive (MPI 4.1, 3.7.2). buf belongs to weft until the request is complete.
func Irecv[T any](c *Comm, buf []T, src, tag int) (Request, error) {
	if lastKnown[T]() && c.fastPathOK(src, tag) {
		if h, err := c.e.Irecv(c.context, memory(buf), c.worldRank(src), tag, sizeOf[T]()); err == nil {
			return Request{h, c}, nil
		} else {
			return Request{}, c.fail("Irecv", src, tag, err)
		}
	}
	return irecv(c, "Irecv", buf, src, tag)
}

func isend[T any](c *Comm, op string, buf []T, dst, tag int, sync bool) (Request, error) {
	b, err := bytesOf(buf)
	var r Request
	if err == nil {
		r, err = c.isend(b, elementOf[T](c), dst, tag, sync)
	}
	if err != nil {
		return Request{}, c.fail(op, dst, tag, err)
	}
	return r, nil
}

func irecv[T any](c *Comm, op string, buf []T, src, tag int) (Request, error) {
	b, err := bytesOf(buf)
	var r Request
	if err == nil {
		r, err = c.irecv(b, elementOf[T](c), src, tag, sizeOf[T]())
	}
	if err != nil {
		return Request{}, c.fail(op, src, tag, err)
	}
	return r, nil
}

// The four below are what the typed calls come down to. Only a communicator with a context has its blocking
// calls take a request, which the end of the context can find.

func (c *Comm) send(b []byte, element *check.Element, dst, tag int, sync bool) error {
	if err := c.checkSend(dst, tag); err != nil || dst == ProcNull {
		return err
	}
	if c.checker != nil {
		return c.checkedSend(b, element, dst, tag, sync)
	}
	if c.hasCanceller() {
		r, err := c.isend(b, nil, dst, tag, sync)
		if err == nil {
			_, err = c.e.Wait(r.h)
		}
		return err
	}
	if sync {
		return c.e.Ssend(c.context, b, c.worldRank(dst), tag)
	}
	return c.e.Send(c.context, b, c.worldRank(dst), tag)
}

func (c *Comm) recv(b []byte, element *check.Element, src, tag, elem int) (Status, error) {
	var st engine.Status
	err := c.checkRecv(src, tag)
	switch {
	case err != nil:
	case src == ProcNull:
		return nullStatus(), nil
	case c.checker != nil:
		st, err = c.checkedRecv(b, element, src, tag, elem)
	case c.hasCanceller():
		var r Request
		if r, err = c.irecv(b, nil, src, tag, elem); err == nil {
			st, err = c.e.Wait(r.h)
		}
	default:
		err = c.e.Recv(c.context, b, c.worldRank(src), tag, elem, &st)
	}
	return c.statusOf(st), err
}

func (c *Comm) isend(b []byte, element *check.Element, dst, tag int, sync bool) (Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return Request{}, err
	}
	var h engine.Request
	var err error
	switch {
	case dst == ProcNull:
		h = engine.Null
	case c.checker != nil:
		return c.checkedIsend([][]byte{b}, element, dst, tag, sync)
	case sync:
		h, err = c.e.Issend(c.context, b, c.worldRank(dst), tag)
	default:
		h, err = c.e.Isend(c.context, b, c.worldRank(dst), tag)
	}
	return c.begun(h, err)
}

func (c *Comm) irecv(b []byte, element *check.Element, src, tag, elem int) (Request, error) {
	if err := c.checkRecv(src, tag); err != nil {
		return Request{}, err
	}
	if src == ProcNull {
		return Request{engine.Null, c}, nil
	}
	if c.checker != nil {
		return c.checkedIrecv([][]byte{b}, element, src, tag, elem)
	}
	h, err := c.e.Irecv(c.context, b, c.worldRank(src), tag, elem)
	return c.begun(h, err)
}

// begun makes the request of an operation that the engine has begun.
func (c *Comm) begun(h engine.Request, err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	c.e.Bind(h, c.canceller)
	return Request{h, c}, nil
}
