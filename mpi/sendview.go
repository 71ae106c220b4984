package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// SendView sends the elements of a view as one message, and returns when they may be changed (MPI 4.1, 3.2.1
// and 5.1). Any receive of as many elements takes it.
func SendView[T any](c *Comm, v View[T], dst, tag int) error {
	buf, err := v.packed()
	if err == nil {
		err = Send(c, buf, dst, tag)
	}
	return c.fail("SendView", dst, tag, err)
}

// RecvView receives a message into the elements of a view. A shorter message fills the first ones; of a
// longer one the rest is lost, with ErrTruncate. A view with an element twice is refused.
func RecvView[T any](c *Comm, v View[T], src, tag int) (Status, error) {
	buf, direct := v.whole()
	err := v.err
	if err == nil && !direct {
		err = v.distinct()
		buf = make([]T, v.n)
	}
	var st Status
	if err == nil {
		st, err = Recv(c, buf, src, tag)
		if !direct {
			v.Unpack(buf[:min(st.Count, len(buf))])
		}
	}
	return st, c.fail("RecvView", src, tag, err)
}

// IsendView begins a SendView. The elements must not be changed until the request is complete.
func IsendView[T any](c *Comm, v View[T], dst, tag int) (Request, error) {
	buf, err := v.packed()
	var r Request
	if err == nil {
		r, err = Isend(c, buf, dst, tag)
	}
	return r, c.fail("IsendView", dst, tag, err)
}

// IrecvView begins a RecvView. The elements belong to weft until the request is complete.
func IrecvView[T any](c *Comm, v View[T], src, tag int) (Request, error) {
	r, err := irecvView(c, v, src, tag)
	return r, c.fail("IrecvView", src, tag, err)
}

func irecvView[T any](c *Comm, v View[T], src, tag int) (Request, error) {
	if v.err != nil {
		return Request{}, v.err
	}
	if buf, ok := v.whole(); ok {
		return Irecv(c, buf, src, tag)
	}
	if _, err := bytesOf(v.data); err != nil {
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
	return c.begun(c.e.IrecvVec(c.context, v.pieces(), c.worldRank(src), tag, sizeOf[T]()))
}

// SendrecvView is Sendrecv of views. They must not overlap.
func SendrecvView[T, U any](c *Comm, send View[T], dst, stag int, recv View[U], src, rtag int) (Status,
	error) {
	r, err := irecvView(c, recv, src, rtag)
	if err != nil {
		return Status{}, c.fail("SendrecvView", src, rtag, err)
	}
	if err := SendView(c, send, dst, stag); err != nil {
		r.abandon() // nothing will answer it
		return Status{}, c.fail("SendrecvView", dst, stag, err)
	}
	st, err := r.Wait()
	return st, c.fail("SendrecvView", src, rtag, err)
}

// AlltoallView sends the elements of in[i] to rank i, and receives those of out[i] from it (MPI 4.1, 6.8.3,
// MPI_Alltoallw). What a rank sends to another is as long as what that one expects. The views of out must not
// overlap.
func AlltoallView[T any](c *Comm, in, out []View[T]) error {
	return c.failColl("AlltoallView", alltoallView(c, in, out))
}

func alltoallView[T any](c *Comm, in, out []View[T]) error {
	if err := c.check(); err != nil {
		return err
	}
	if len(in) != c.size || len(out) != c.size {
		return fmt.Errorf("%w: %d views in and %d out, of %d ranks", ErrCount, len(in), len(out), c.size)
	}
	scounts, rcounts := make([]int, c.size), make([]int, c.size)
	sent, received := 0, 0
	for i := range c.size {
		if in[i].err != nil {
			return in[i].err
		}
		err := out[i].err
		if err == nil {
			err = out[i].distinct()
		}
		if err != nil {
			return err
		}
		scounts[i], rcounts[i] = in[i].n, out[i].n
		sent, received = sent+in[i].n, received+out[i].n
	}
	sbuf, rbuf := make([]T, sent), make([]T, received)
	at := 0
	for i := range in {
		at += in[i].Pack(sbuf[at:])
	}
	if err := Alltoallv(c, sbuf, scounts, nil, rbuf, rcounts, nil); err != nil {
		return err
	}
	for i := range out {
		rbuf = rbuf[out[i].Unpack(rbuf):]
	}
	return nil
}

// packed are the elements one after another: where they are, or in new memory.
func (v *View[T]) packed() ([]T, error) {
	buf, ok := v.whole()
	if v.err == nil && !ok {
		buf = make([]T, v.n)
		v.Pack(buf)
	}
	return buf, v.err
}
