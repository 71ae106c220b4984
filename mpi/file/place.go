package file

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file/internal/regions"
)

// A Place says which elements of a file are a rank's, and in which order: the first element of the Place
// belongs to the first one of the rank's View, and so on. Elements have the type of the View and are counted
// from 0, at the beginning of the file or at the offset of [Place.At]. The zero Place selects nothing.
type Place struct {
	shape  regions.Shape
	offset int64
	big    bool
}

// Range selects count elements from element first on. Range(mpi.Part(n, rank, size)) selects a rank's part of
// n elements.
func Range(first, count int) Place { return Place{shape: regions.Range(first, count)} }

// Strided selects count blocks of block elements. Blocks begin stride elements apart, the first at element
// first. With a negative stride, the blocks come from the last to the first. Blocks must not overlap.
func Strided(first, count, block, stride int) Place {
	return Place{shape: regions.Strided(first, count, block, stride)}
}

// Sub selects a block of an n-dimensional array of which the file has the last index changing fastest (row
// by row, as C and Go have it): the elements with indices from start up to but not including start + size in
// each dimension. The View has the elements of the block in the same order. The slices must not be changed
// while the Place is in use.
func Sub(shape, start, size []int) Place {
	return Place{shape: regions.Sub(shape, start, size, false)}
}

// SubColumns is Sub for an array of which the file has the first index changing fastest (column by column, as
// Fortran has it). The View still has the elements of the block with the last index changing fastest, so
// reading and writing transpose. For a block that is column by column in memory too, use Sub with the slices
// reversed.
func SubColumns(shape, start, size []int) Place {
	return Place{shape: regions.Sub(shape, start, size, true)}
}

// Indexed selects length[i] elements from element at[i] on, for each i in turn. If length is nil, it selects
// one element each. ReadAll accepts an element that is selected twice, WriteAll refuses it. The slices must
// not be changed while the Place is in use.
func Indexed(at, length []int) Place { return Place{shape: regions.Indexed(at, length)} }

// At returns the Place with its elements counted from an offset in bytes, such as the length of a header.
func (p Place) At(offset int64) Place {
	p.offset = offset
	return p
}

// BigEndian returns the Place with the numbers in its elements, and in their fields, in big-endian order in
// the file. Otherwise they are as in memory: in little-endian order, on all processors that weft runs on.
func (p Place) BigEndian() Place {
	p.big = true
	return p
}

// regions returns where the bytes of elements of a size are.
func (p Place) regions(size int) (regions.Regions, error) {
	if p.shape == nil {
		return regions.Regions{}, nil
	}
	r, err := p.shape(int64(size))
	if err == nil {
		err = r.Move(p.offset)
	}
	if err != nil {
		return regions.Regions{}, fmt.Errorf("%w: %w", mpi.ErrArg, err)
	}
	return r, nil
}

// swaps reports whether elements are in another byte order in the file than in memory.
func (p Place) swaps() bool { return p.big != (binary.NativeEndian.Uint16([]byte{0, 1}) == 1) }
