package mpi

import (
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// Send sends buf to rank dst (MPI 4.1, 3.2.1). It returns when buf may be reused, which may be before the
// receiver has the message. T must have a fixed size and no pointers. A nil buf is a message of no elements.
func Send[T any](c *Comm, buf []T, dst, tag int) error {
	var err error
	if lastKnown[T]() && c.fastPathOK(dst, tag) {
		err = c.e.Sends.Send(c.context, memory(buf), c.worldRank(dst), tag)
	} else {
		err = send(c, buf, dst, tag, false)
	}
	if err != nil {
		return c.fail("Send", dst, tag, err)
	}
	return nil
}

// send is a send with all checks.
func send[T any](c *Comm, buf []T, dst, tag int, sync bool) error {
	b, err := bufferOf(c, buf)
	if err != nil {
		return err
	}
	return c.send(&b, dst, tag, sync)
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
// whole number of elements gives ErrType, as with every receive; then buf holds its bytes. Otherwise the
// types of sender and receiver are not compared, except with WEFT_CHECK=1.
func Recv[T any](c *Comm, buf []T, src, tag int) (Status, error) {
	if lastKnown[T]() && c.fastPathOK(src, tag) {
		var st engine.Status
		err := c.e.Recvs.Recv(c.context, memory(buf), c.worldRank(src), tag, sizeOf[T](), &st)
		if err == nil {
			return Status{Source: src, Tag: tag, Count: st.Bytes / sizeOf[T](), bytes: st.Bytes}, nil
		}
		return c.statusOf(st), c.fail("Recv", src, tag, err)
	}
	b, err := bufferOf(c, buf)
	var st Status
	if err == nil {
		st, err = c.recv(&b, src, tag)
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
	b, err := bufferOf(c, buf)
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
	if _, done, err := s.Test(); done {
		if err != nil {
			return Status{}, c.fail(op, dst, stag, err)
		}
		st, err := c.recv(&b, src, rtag)
		return st, c.fail(op, src, rtag, err)
	}
	in := &engine.Sized{Limit: len(b.bytes), Cut: true}
	r, err := c.irecv(&buffer{sized: in, element: b.element, elem: b.elem}, src, rtag)
	if err != nil {
		_ = s.Cancel()
		_, _ = s.wait(op)
		return Status{}, c.fail(op, src, rtag, err)
	}
	st, err := r.wait(op)
	_, serr := s.wait(op)
	if serr == nil {
		copy(b.bytes, in.Bytes)
	} else if err == nil {
		return st, c.fail(op, dst, stag, serr)
	}
	return st, c.fail(op, src, rtag, err)
}

// Isend begins a send (MPI 4.1, 3.7.2). buf must not be changed until the request is complete.
func Isend[T any](c *Comm, buf []T, dst, tag int) (Request, error) {
	if lastKnown[T]() && c.fastPathOK(dst, tag) {
		if h, err := c.e.Sends.Isend(c.context, memory(buf), c.worldRank(dst), tag); err == nil {
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
		if h, err := c.e.Recvs.Irecv(c.context, memory(buf), c.worldRank(src), tag, sizeOf[T]()); err == nil {
			return Request{h, c}, nil
		} else {
			return Request{}, c.fail("Irecv", src, tag, err)
		}
	}
	return irecv(c, "Irecv", buf, src, tag)
}

func isend[T any](c *Comm, op string, buf []T, dst, tag int, sync bool) (Request, error) {
	b, err := bufferOf(c, buf)
	var r Request
	if err == nil {
		r, err = c.isend(&b, dst, tag, sync)
	}
	if err != nil {
		return Request{}, c.fail(op, dst, tag, err)
	}
	return r, nil
}

func irecv[T any](c *Comm, op string, buf []T, src, tag int) (Request, error) {
	b, err := bufferOf(c, buf)
	var r Request
	if err == nil {
		r, err = c.irecv(&b, src, tag)
	}
	if err != nil {
		return Request{}, c.fail(op, src, tag, err)
	}
	return r, nil
}

// buffer is a buffer to send or to receive: one of its first four fields.
type buffer struct {
	bytes  []byte
	vec    [][]byte       // several buffers; else nil
	layout *layout.Layout // selects bytes of memory that are not contiguous; else nil
	sized  *engine.Sized  // memory that a receive allocates; else nil

	memory  unsafe.Pointer // memory of the layout
	element *check.Element // in checking mode
	elem    int            // bytes of an element
}

// bufferOf returns a slice as a buffer.
func bufferOf[T any](c *Comm, buf []T) (buffer, error) {
	b, err := bytesOf(buf)
	return buffer{bytes: b, element: elementOf[T](c), elem: sizeOf[T]()}, err
}

// Calls that send a buffer, or receive one that no probe has matched, end in one of the four functions below,
// unless fastPathOK lets them go directly to the engine. Blocking calls use a request only if the
// communicator has a context, whose end cancels the request, and in checking mode for what is not short.

func (c *Comm) send(b *buffer, dst, tag int, sync bool) error {
	if err := c.checkSend(dst, tag); err != nil || dst == ProcNull {
		return err
	}
	switch {
	case c.checker != nil:
		return c.checkedSend(b, dst, tag, sync)
	case c.hasCanceller():
		r, err := c.isend(b, dst, tag, sync)
		if err == nil {
			_, err = c.e.Requests.Wait(r.h)
		}
		return err
	case b.layout != nil:
		return c.e.Sends.SendView(c.context, b.layout, b.memory, c.worldRank(dst), tag)
	case sync:
		return c.e.Sends.Ssend(c.context, b.bytes, c.worldRank(dst), tag)
	}
	return c.e.Sends.Send(c.context, b.bytes, c.worldRank(dst), tag)
}

func (c *Comm) recv(b *buffer, src, tag int) (Status, error) {
	var st engine.Status
	err := c.checkRecv(src, tag)
	switch {
	case err != nil:
	case src == ProcNull:
		return nullStatus(), nil
	case c.checker != nil:
		st, err = c.checkedRecv(b, src, tag)
	case c.hasCanceller():
		var r Request
		if r, err = c.irecv(b, src, tag); err == nil {
			st, err = c.e.Requests.Wait(r.h)
		}
	case b.layout != nil:
		err = c.e.Recvs.RecvView(c.context, b.layout, b.memory, c.worldRank(src), tag, b.elem, &st)
	default:
		err = c.e.Recvs.Recv(c.context, b.bytes, c.worldRank(src), tag, b.elem, &st)
	}
	return c.statusOf(st), err
}

func (c *Comm) isend(b *buffer, dst, tag int, sync bool) (Request, error) {
	if err := c.checkSend(dst, tag); err != nil {
		return Request{}, err
	}
	switch {
	case dst == ProcNull:
		return Request{engine.Null, c}, nil
	case c.checker != nil:
		return c.checkedIsend(b, dst, tag, sync)
	case b.vec != nil:
		return c.begun(c.e.Sends.IsendVec(c.context, b.vec, c.worldRank(dst), tag))
	case b.layout != nil:
		return c.begun(c.e.Sends.IsendView(c.context, b.layout, b.memory, c.worldRank(dst), tag))
	case sync:
		return c.begun(c.e.Sends.Issend(c.context, b.bytes, c.worldRank(dst), tag))
	}
	return c.begun(c.e.Sends.Isend(c.context, b.bytes, c.worldRank(dst), tag))
}

func (c *Comm) irecv(b *buffer, src, tag int) (Request, error) {
	if err := c.checkRecv(src, tag); err != nil {
		return Request{}, err
	}
	switch {
	case src == ProcNull:
		return Request{engine.Null, c}, nil
	case c.checker != nil:
		return c.checkedIrecv(b, src, tag)
	case b.vec != nil:
		return c.begun(c.e.Recvs.IrecvVec(c.context, b.vec, c.worldRank(src), tag, b.elem))
	case b.layout != nil:
		return c.begun(c.e.Recvs.IrecvView(c.context, b.layout, b.memory, c.worldRank(src), tag, b.elem))
	case b.sized != nil:
		return c.begun(c.e.Recvs.IrecvSized(c.context, b.sized, c.worldRank(src), tag, b.elem))
	}
	return c.begun(c.e.Recvs.Irecv(c.context, b.bytes, c.worldRank(src), tag, b.elem))
}

// begun makes the request of an operation that the engine has begun.
func (c *Comm) begun(h engine.Request, err error) (Request, error) {
	if err != nil {
		return Request{}, err
	}
	c.e.Cancels.Bind(h, c.canceller)
	return Request{h, c}, nil
}
