package mpi

import (
	"math"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// RecvSlice receives a message of any length from rank src, or AnySource, with tag, or AnyTag, and returns
// its elements in new memory. It is Mprobe and Mrecv in one call. From ProcNull it returns no elements. A
// message that is no whole number of elements gives ErrType, and one of more bytes than the machine has
// memory ErrTruncate.
func RecvSlice[T any](c *Comm, src, tag int) ([]T, Status, error) {
	var st Status
	var m *engine.Sized
	err := checkElement[T]()
	if err == nil {
		m, st, err = c.recvSized(elementOf[T](c), "RecvSlice", src, tag, sizeOf[T]())
	}
	if err != nil {
		return nil, st, c.fail("RecvSlice", src, tag, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(m.Bytes))), len(m.Bytes)/sizeOf[T]()), st, nil
}

// mostBytes bounds what one message makes this rank allocate: a peer says how long it is.
var mostBytes = sync.OnceValue(func() int {
	if total, err := sys.TotalMemory(); err == nil {
		return int(total)
	}
	return math.MaxInt32
})

// recvSized receives a message of any length into memory that is allocated for it.
func (c *Comm) recvSized(element *check.Element, op string, src, tag, elem int) (*engine.Sized, Status,
	error) {
	r, m, err := c.irecvSized(element, src, tag, elem)
	if err != nil {
		return nil, Status{}, err
	}
	st, err := r.wait(op)
	return m, st, err
}

// irecvSized begins such a receive. The message is there when the request is complete.
func (c *Comm) irecvSized(element *check.Element, src, tag, elem int) (Request, *engine.Sized, error) {
	m := &engine.Sized{Limit: mostBytes()}
	if err := c.checkRecv(src, tag); err != nil {
		return Request{}, m, err
	}
	if src == ProcNull {
		return Request{engine.Null, c}, m, nil
	}
	if c.checker == nil {
		h, err := c.e.IrecvSized(c.context, m, c.worldRank(src), tag, elem)
		r, err := c.begun(h, err)
		return r, m, err
	}
	checked := c.newCheckedRecv(nil, element, src, tag)
	m.Head = checked.head[:]
	h, err := c.e.IrecvSized(c.context, m, c.worldRank(src), tag, elem)
	r, err := c.begunChecked(checked, h, err)
	return r, m, err
}
