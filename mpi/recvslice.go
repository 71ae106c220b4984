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
	m := &engine.Sized{Limit: mostBytes()}
	err := checkElement[T]()
	if err == nil {
		var r Request
		if r, err = c.irecvSized(m, elementOf[T](c), src, tag, sizeOf[T]()); err == nil {
			st, err = r.wait("RecvSlice")
		}
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

// irecvSized begins a receive into memory that is allocated when its message is matched. The message is there
// when the request is complete.
func (c *Comm) irecvSized(m *engine.Sized, element *check.Element, src, tag, elem int) (Request, error) {
	if err := c.checkRecv(src, tag); err != nil {
		return Request{}, err
	}
	if src == ProcNull {
		return Request{engine.Null, c}, nil
	}
	if c.checker == nil {
		return c.begun(c.e.IrecvSized(c.context, m, c.worldRank(src), tag, elem))
	}
	checked := c.newCheckedRecv(nil, element, src, tag)
	m.Head = checked.head[:]
	h, err := c.e.IrecvSized(c.context, m, c.worldRank(src), tag, elem)
	return c.begunChecked(checked, h, err)
}
