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
		err = c.e.Sends.SendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag)
	default:
		err = c.e.Sends.Send(c.context, v.contiguousBytes(), c.worldRank(dst), tag)
	}
	if err != nil {
		return c.fail("SendView", dst, tag, err)
	}
	return nil
}

func sendView[T any](c *Comm, v View[T], dst, tag int) error {
	b, err := v.buffer(c)
	if err == nil {
		err = c.send(&b, dst, tag, false)
	}
	return err
}

// buffer is the view as a buffer.
func (v View[T]) buffer(c *Comm) (buffer, error) {
	if err := cmp.Or(v.err(), checkElement[T]()); err != nil {
		return buffer{}, err
	}
	b := buffer{element: elementOf[T](c), elem: sizeOf[T]()}
	switch {
	case v.scattered():
		b.layout, b.memory = v.layout(new(layout.Layout)), v.base()
	case v.bytes > 0:
		b.bytes = v.contiguousBytes()
	}
	return b, nil
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
			err = c.e.Recvs.RecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag,
				sizeOf[T](), &st)
		} else {
			err = c.e.Recvs.Recv(c.context, v.contiguousBytes(), c.worldRank(src), tag, sizeOf[T](), &st)
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
	b, err := v.buffer(c)
	if err = cmp.Or(err, v.distinct()); err != nil {
		return Status{}, err
	}
	return c.recv(&b, src, tag)
}

// IsendView begins a SendView. The elements must not be changed until the request is complete.
func IsendView[T any](c *Comm, v View[T], dst, tag int) (Request, error) {
	if v.bytes > 0 && v.scattered() && lastKnown[T]() && c.fastPathOK(dst, tag) {
		var own layout.Layout
		h, err := c.e.Sends.IsendView(c.context, v.layout(&own), v.base(), c.worldRank(dst), tag)
		if err != nil {
			return Request{}, c.fail("IsendView", dst, tag, err)
		}
		return Request{h, c}, nil
	}
	b, err := v.buffer(c)
	var r Request
	if err == nil {
		r, err = c.isend(&b, dst, tag, false)
	}
	if err != nil {
		return Request{}, c.fail("IsendView", dst, tag, err)
	}
	return r, nil
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
	if v.bytes > 0 && v.scattered() && lastKnown[T]() && c.fastPathOK(src, tag) && v.isDistinct() {
		var own layout.Layout
		h, err := c.e.Recvs.IrecvView(c.context, v.layout(&own), v.base(), c.worldRank(src), tag, sizeOf[T]())
		return Request{h, c}, err
	}
	b, err := v.buffer(c)
	if err = cmp.Or(err, v.distinct()); err != nil {
		return Request{}, err
	}
	return c.irecv(&b, src, tag)
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
	if err := SendView(c, send, dst, stag); err != nil {
		return r.withdraw(), c.fail("SendrecvView", dst, stag, err)
	}
	st, err := r.wait("SendrecvView")
	return st, c.fail("SendrecvView", src, rtag, err)
}
