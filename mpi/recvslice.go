package mpi

import (
	"math"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
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
		if r, err = c.irecv(&buffer{sized: m, element: elementOf[T](c), elem: sizeOf[T]()}, src,
			tag); err == nil {
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
