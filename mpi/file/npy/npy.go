// Package npy reads and writes arrays in NumPy's .npy files, by all ranks of a communicator together. Python
// opens with numpy.load what Write has written, and the other way round.
//
//	a, err := npy.Create[float64](world, "plate.npy", npy.Rows, height, width)
//	…
//	err = a.Write([]int{y, x}, []int{rows, columns}, mpi.Whole(cells))
//	…
//	err = a.Close()
//
// The format is specified at https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
package npy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
	"github.com/weft-mpi/weft/mpi/internal/together"
)

// An Order says which elements of an array follow one another in the file.
type Order bool

const (
	Rows    Order = false // the last index changes fastest: NumPy's C order
	Columns Order = true  // the first index changes fastest: NumPy's Fortran order
)

// An Array is an array of T in a .npy file that ranks have opened together. Its methods are collective,
// except Shape and Order.
type Array[T any] struct {
	file   *file.File
	header Header
	data   int64  // offset
	bytes  []byte // of the header that rank 0 writes at Close
	fresh  bool   // Close has to write the header
}

// Create creates a file for an array of a shape, or empties the one of that name. T is a boolean, an integer,
// a floating-point or a complex number. All ranks pass the same arguments. Elements that are never written
// are zero. NumPy refuses the file until Close has returned, so a file of a job that failed is not taken for
// complete.
func Create[T any](c *mpi.Comm, name string, order Order, shape ...int) (*Array[T], error) {
	a := &Array[T]{header: Header{Columns: bool(order), Shape: slices.Clone(shape)}}
	var err error
	if a.header.Type, err = TypeOf[T](); err == nil {
		a.bytes, err = a.header.Append(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("npy: %s: %w", name, err)
	}
	if a.data, a.fresh = int64(len(a.bytes)), true; c.Rank() > 0 {
		a.bytes = nil
	}
	elements, size, err := a.header.size()
	if err != nil {
		return nil, fmt.Errorf("npy: %s: %w", name, err)
	}
	if a.file, err = file.Open(c, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666); err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	if err := a.file.SetSize(a.data + int64(elements)*int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("npy: %w", err), a.file.Close())
	}
	return a, nil
}

// Open opens a file for reading. It returns an error at all ranks if the elements are not of type T. Their
// byte order may be either.
func Open[T any](c *mpi.Comm, name string) (*Array[T], error) {
	f, err := file.Open(c, name, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("npy: %w", err)
	}
	a := &Array[T]{file: f}
	if c.Rank() == 0 {
		err = a.readHeader()
	}
	err = together.Agree(c, err, ErrFormat, mpi.ErrType, io.ErrUnexpectedEOF)
	if err == nil {
		var h opened
		h, err = mpi.BcastValue(c, opened{a.header, a.data}, 0)
		a.header, a.data = h.Header, h.Data
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npy: %s: %w", name, err), f.Close())
	}
	return a, nil
}

// opened is what rank 0 tells the others of a file.
type opened struct {
	Header Header
	Data   int64
}

func (a *Array[T]) readHeader() error {
	want, err := TypeOf[T]()
	if err != nil {
		return err
	}
	if a.header, a.data, err = ReadHeader(io.NewSectionReader(a.file, 0, 2*maxHeader)); err != nil {
		return err
	}
	if a.header.Type[1:] != want[1:] {
		var zero T
		return fmt.Errorf("%w: the elements are %q, not %q (%T)", mpi.ErrType, a.header.Type, want, zero)
	}
	elements, size, err := a.header.size()
	if err != nil {
		return err
	}
	bytes, err := a.file.Size()
	if err == nil && bytes < a.data+int64(elements)*int64(size) {
		err = fmt.Errorf("it has %d bytes, and the array of shape %v needs %d: %w", bytes, a.header.Shape,
			a.data+int64(elements)*int64(size), io.ErrUnexpectedEOF)
	}
	return err
}

// Shape returns the array's shape. The caller must not change it.
func (a *Array[T]) Shape() []int { return a.header.Shape }

// Order returns which elements follow one another in the file.
func (a *Array[T]) Order() Order { return Order(a.header.Columns) }

// place is a block of the array.
func (a *Array[T]) place(start, size []int) file.Place {
	sub := file.Sub
	if a.header.Columns {
		sub = file.SubColumns
	}
	p := sub(a.header.Shape, start, size).At(a.data)
	if a.header.Type[0] == '>' {
		p = p.BigEndian()
	}
	return p
}

// Write writes the elements of v to a block of the array: those with indices from start up to but not
// including start + size in each dimension. v has them with the last index changing fastest, whatever the
// order in the file. Each rank passes its own block, which may be empty. No two ranks may write the same
// element.
func (a *Array[T]) Write(start, size []int, v mpi.View[T]) error {
	err := file.WriteAll(a.file, a.place(start, size), v)
	if err != nil {
		a.fresh = false // of what may be incomplete
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// Read reads a block of the array into the elements of v, which are in the order that Write describes. Each
// rank passes its own block, which may be empty.
func (a *Array[T]) Read(start, size []int, v mpi.View[T]) error {
	if _, err := file.ReadAll(a.file, a.place(start, size), v); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}

// Close closes the file. After Create it writes the header first, unless a Write has failed.
func (a *Array[T]) Close() error {
	var err error
	if a.fresh {
		err = file.WriteAll(a.file, file.Range(0, len(a.bytes)), mpi.Whole(a.bytes))
	}
	if err = errors.Join(err, a.file.Close()); err != nil {
		return fmt.Errorf("npy: %w", err)
	}
	return nil
}
