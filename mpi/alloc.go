package mpi

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Alloc returns a slice of n zero elements in registered memory (MPI 4.1, 9.2). The memory is outside the Go
// heap, on pages of its own, and of a kind that the fabric can move without an intermediate copy. The slice
// and its subslices can be used wherever a buffer can. Where registration costs nothing, as over TCP,
// ordinary slices are as fast.
//
// The garbage collector does not manage the memory; Free releases it. Memory that has not been freed by
// Finalize stays readable and writable until the process ends, so results can be read after Run.
func Alloc[T any](n int) ([]T, error) {
	e, err := running[T]()
	switch {
	case err != nil:
		return nil, asError("Alloc", err)
	case n < 0:
		return nil, asError("Alloc", fmt.Errorf("%w: %d elements", ErrCount, n))
	case n > math.MaxInt/sizeOf[T]():
		return nil, asError("Alloc", fmt.Errorf("%w: %d elements of %d bytes are more than there can be",
			ErrCount, n, sizeOf[T]()))
	case n == 0:
		return []T{}, nil
	}
	b, err := e.Alloc(n * sizeOf[T]())
	if err != nil {
		return nil, asError("Alloc", err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// Free releases memory that Alloc returned. It takes the whole slice, not a part of it, and must be called
// before Finalize. If an operation of this rank still uses the memory, Free releases nothing and returns an
// ErrBuffer error that names the operation. Such an operation is a request that is not complete, a collective
// of another goroutine, or a Persistent that is not freed. The program must not access the memory after Free:
// that would crash it. Free of a slice with no capacity does nothing.
func Free[T any](buf []T) error {
	e, err := running[T]()
	if err == nil && cap(buf) > 0 {
		err = e.Free(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf)*sizeOf[T]()))
	}
	return asError("Free", err)
}

// running gives the engine of this rank, for memory of elements of type T.
func running[T any]() (*engine.Engine, error) {
	switch e := current.Load(); {
	case e == nil:
		return nil, ErrNotInitialized
	case ended.Load():
		return nil, ErrFinalized
	default:
		_, err := bytesOf[T](nil)
		return e, err
	}
}
