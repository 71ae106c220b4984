package mpi

import (
	"cmp"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// SendView sends the elements of a view as one message, and returns when they may be changed (MPI 4.1, 3.2.1
// and 5.1). Any receive of as many elements matches it. Except in checking mode, at most 64 KiB of the
// elements are copied to contiguous memory at a time.
func SendView[T any](c *Comm, v View[T], dst, tag int) error {
	var err error
	switch {
	case v.bytes == 0 || !lastKnown[T]() || !c.fastPathOK(dst, tag):
		err = sendView(c, v, dst, tag)
	case v.scattered():
		var own layout.Layout
		err = c.e.SendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag)
	default:
		err = c.e.Send(c.context, v.contiguousBytes(), c.worldRank(dst), tag)
	}
	if err != nil {
		return c.fail("SendView", dst, tag, err)
	}
	return nil
}

func sendView[T any](c *Comm, v View[T], dst, tag int) error {
	if err := v.err(); err != nil {
		return err
	}
	if buf, ok := v.slice(); ok {
		return Send(c, buf, dst, tag)
	}
	if !lastKnown[T]() || !c.fastPathOK(dst, tag) {
		if buf, err := v.checked(c); buf != nil || err != nil {
			return cmp.Or(err, send(c, buf, dst, tag, false))
		}
		if err := c.checkSend(dst, tag); err != nil || dst == ProcNull {
			return err
		}
		if c.hasCanceller() {
			r, err := isendView(c, v, dst, tag)
			if err == nil {
				_, err = c.e.Wait(r.h)
			}
			return err
		}
	}
	var own layout.Layout
	return c.e.SendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag)
}

// RecvView receives a message into the elements of a view. A shorter message fills the first elements. A
// longer one fills all of them and gives ErrTruncate; the rest is lost. RecvView refuses a view that contains
// an element twice.
func RecvView[T any](c *Comm, v View[T], src, tag int) (Status, error) {
	if v.bytes > 0 && lastKnown[T]() && c.fastPathOK(src, tag) && v.isDistinct() {
		var st engine.Status
		var err error
		if v.scattered() {
			var own layout.Layout
			err = c.e.RecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag, sizeOf[T](), &st)
		} else {
			err = c.e.Recv(c.context, v.contiguousBytes(), c.worldRank(src), tag, sizeOf[T](), &st)
		}
		if err != nil {
			return c.statusOf(st), c.fail("RecvView", src, tag, err)
		}
		return Status{Source: src, Tag: tag, Count: st.Bytes / sizeOf[T](), bytes: st.Bytes}, nil
	}
	st, err := recvView(c, v, src, tag)
	if err != nil {
		return st, c.fail("RecvView", src, tag, err)
	}
	return st, nil
}

func recvView[T any](c *Comm, v View[T], src, tag int) (Status, error) {
	if err := v.err(); err != nil {
		return Status{}, err
	}
	if buf, ok := v.slice(); ok {
		return Recv(c, buf, src, tag)
	}
	if err := v.distinct(); err != nil {
		return Status{}, err
	}
	if !lastKnown[T]() || !c.fastPathOK(src, tag) {
		if err := checkElement[T](); err != nil {
			return Status{}, err
		}
		if err := c.checkRecv(src, tag); err != nil {
			return Status{}, err
		}
		if src == ProcNull {
			return nullStatus(), nil
		}
		if c.checker != nil || c.hasCanceller() {
			r, err := irecvView(c, v, src, tag)
			if err != nil {
				return Status{}, err
			}
			return r.wait("RecvView")
		}
	}
	var own layout.Layout
	var st engine.Status
	err := c.e.RecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag, sizeOf[T](), &st)
	return c.statusOf(st), err
}

// IsendView begins a SendView. The elements must not be changed until the request is complete.
func IsendView[T any](c *Comm, v View[T], dst, tag int) (Request, error) {
	r, err := isendView(c, v, dst, tag)
	if err != nil {
		return Request{}, c.fail("IsendView", dst, tag, err)
	}
	return r, nil
}

func isendView[T any](c *Comm, v View[T], dst, tag int) (Request, error) {
	var own layout.Layout
	if v.bytes > 0 && v.scattered() && lastKnown[T]() && c.fastPathOK(dst, tag) {
		h, err := c.e.IsendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag)
		return Request{h, c}, err
	}
	if err := v.err(); err != nil {
		return Request{}, err
	}
	if buf, ok := v.slice(); ok {
		return Isend(c, buf, dst, tag)
	}
	if buf, err := v.checked(c); buf != nil || err != nil {
		if err != nil {
			return Request{}, err
		}
		return Isend(c, buf, dst, tag)
	}
	if err := c.checkSend(dst, tag); err != nil {
		return Request{}, err
	}
	if dst == ProcNull {
		return Request{engine.Null, c}, nil
	}
	return c.begun(c.e.IsendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag))
}

// IrecvView begins a RecvView. The elements belong to weft until the request is complete.
func IrecvView[T any](c *Comm, v View[T], src, tag int) (Request, error) {
	r, err := irecvView(c, v, src, tag)
	if err != nil {
		return Request{}, c.fail("IrecvView", src, tag, err)
	}
	return r, nil
}

func irecvView[T any](c *Comm, v View[T], src, tag int) (Request, error) {
	var own layout.Layout
	if v.bytes > 0 && v.scattered() && lastKnown[T]() && c.fastPathOK(src, tag) && v.isDistinct() {
		h, err := c.e.IrecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag, sizeOf[T]())
		return Request{h, c}, err
	}
	if err := v.err(); err != nil {
		return Request{}, err
	}
	if buf, ok := v.slice(); ok {
		return Irecv(c, buf, src, tag)
	}
	if err := checkElement[T](); err != nil {
		return Request{}, err
	}
	if err := v.distinct(); err != nil {
		return Request{}, err
	}
	if err := c.checkRecv(src, tag); err != nil {
		return Request{}, err
	}
	if src == ProcNull {
		return Request{engine.Null, c}, nil
	}
	if c.checker != nil {
		return c.checkedIrecv(v.pieces(), elementOf[T](c), src, tag, sizeOf[T]())
	}
	return c.begun(c.e.IrecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag, sizeOf[T]()))
}

// SendrecvView is Sendrecv of views. They must not overlap. If only the send fails, the status says what was
// received all the same; Status.Cancelled, that nothing was.
func SendrecvView[T, U any](c *Comm, send View[T], dst, stag int, recv View[U], src, rtag int) (Status,
	error) {
	err := send.err()
	if err == nil {
		_, err = bytesOf[T](nil)
	}
	if err == nil {
		err = c.checkSend(dst, stag) // before the receive can take a message
	}
	if err != nil {
		return Status{}, c.fail("SendrecvView", dst, stag, err)
	}
	r, err := irecvView(c, recv, src, rtag)
	if err != nil {
		return Status{}, c.fail("SendrecvView", src, rtag, err)
	}
	if err := sendView(c, send, dst, stag); err != nil {
		return r.withdraw(), c.fail("SendrecvView", dst, stag, err)
	}
	st, err := r.wait("SendrecvView")
	return st, c.fail("SendrecvView", src, rtag, err)
}

// checked are the elements one after another in new memory, for a communicator whose messages are checked;
// else nil.
func (v View[T]) checked(c *Comm) ([]T, error) {
	if err := checkElement[T](); err != nil || c == nil || c.commState == nil || c.checker == nil {
		return nil, err
	}
	buf := make([]T, v.Len())
	v.Pack(buf)
	return buf, nil
}
