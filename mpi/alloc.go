package mpi

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
)

// Alloc returns a slice of n zero elements in registered memory (MPI 4.1, 9.2). The memory is outside the Go
// heap, on pages of its own, and of a kind that the fabric can move without an intermediate copy. The slice
// and its subslices can be used wherever a buffer can. Where registration costs nothing, as over TCP,
// ordinary slices are as fast.
//
// The garbage collector does not manage the memory; Free releases it. Memory that has not been freed by
// Finalize stays readable and writable until the process ends, so results can be read after Run.
//
// Alloc acts on the rank that this process is, and AllocOn on the rank of a communicator.
func Alloc[T any](n int) ([]T, error) {
	e, err := running()
	if err == nil {
		var buf []T
		if buf, err = allocate[T](e, n); err == nil {
			return buf, nil
		}
	}
	return nil, asError("Alloc", err)
}

// AllocOn is Alloc for the rank to which the handle of a communicator belongs. It is for programs whose ranks
// are goroutines of one process: see package mpitest. AllocOn does not communicate.
func AllocOn[T any](c *Comm, n int) ([]T, error) {
	err := c.check()
	if err == nil {
		var buf []T
		if buf, err = allocate[T](c.e, n); err == nil {
			return buf, nil
		}
	}
	return nil, c.fail("AllocOn", NoPeer, NoPeer, err)
}

func allocate[T any](e *engine.Engine, n int) ([]T, error) {
	_, err := bytesOf[T](nil)
	switch {
	case err != nil:
		return nil, err
	case n < 0:
		return nil, fmt.Errorf("%w: %d elements", ErrCount, n)
	case n > math.MaxInt/sizeOf[T]():
		return nil, fmt.Errorf("%w: %d elements of %d bytes are more than there can be", ErrCount, n,
			sizeOf[T]())
	case n == 0:
		return []T{}, nil
	}
	b, err := e.Hub().Memory.Alloc(n * sizeOf[T]())
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// Free releases memory that Alloc returned. It takes the whole slice, not a part of it, and must be called
// before Finalize. If an operation of this rank still uses the memory, Free releases nothing and returns an
// ErrBuffer error that names the operation. Such an operation is a request that is not complete, a collective
// of another goroutine, or a Persistent that is not freed. The program must not access the memory after Free:
// that would crash it. Free of a slice with no capacity does nothing.
func Free[T any](buf []T) error {
	e, err := running()
	if err == nil {
		err = release(e, buf)
	}
	return asError("Free", err)
}

// FreeOn is Free of memory that AllocOn returned for the same rank.
func FreeOn[T any](c *Comm, buf []T) error {
	err := c.check()
	if err == nil {
		err = release(c.e, buf)
	}
	return c.fail("FreeOn", NoPeer, NoPeer, err)
}

func release[T any](e *engine.Engine, buf []T) error {
	_, err := bytesOf[T](nil)
	if err == nil && cap(buf) > 0 {
		err = e.Hub().Memory.Free(memory(buf))
	}
	return err
}

// running gives the engine of the rank that this process is.
func running() (*engine.Engine, error) {
	switch c := process.world.Load(); {
	case c == nil && inprocess.Here():
		return nil, fmt.Errorf("%w in this process; ranks that are goroutines use AllocOn and FreeOn",
			ErrNotInitialized)
	case c == nil:
		return nil, ErrNotInitialized
	case c.job.ended.Load():
		return nil, ErrFinalized
	default:
		return c.e, nil
	}
}
