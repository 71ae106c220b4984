package mpi

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/grid"
)

// DimsCreate fills in the zeros of dims so that the product of all dimensions is n (MPI 4.1, 8.5.1). The
// values that it fills in are as equal as possible, and in non-increasing order. It returns ErrArg for an n
// above 2^44 with two prime factors above 2^22. It is a local call.
func DimsCreate(n int, dims []int) error {
	if err := grid.Fill(n, dims); err != nil {
		return asError("DimsCreate", fmt.Errorf("%w: %w", ErrArg, err))
	}
	return nil
}

// Cart is a communicator whose ranks form a grid of any number of dimensions (MPI 4.1, 8.5). Ranks follow the
// coordinates in row-major order: the last coordinate changes fastest.
type Cart struct {
	comm     *Comm
	dims     []int
	periodic []bool
}

// Cart makes a grid of the first ranks of the communicator. Ranks that do not fit into the grid get nil; on a
// nil Cart, every method that returns an error returns ErrComm. In a periodic dimension, the last and the
// first coordinate are neighbors. With reorder, ranks are placed so that neighbors are on the same host where
// possible; otherwise ranks keep their order. All ranks of the communicator call Cart with the same
// arguments. The grid has its own communicator, which Comm returns and whose Free releases it.
func (c *Comm) Cart(dims []int, periodic []bool, reorder bool) (*Cart, error) {
	err := c.check()
	if err == nil {
		err = c.checkGrid(dims, periodic)
	}
	if err != nil {
		return nil, c.failColl("Cart", err)
	}
	s := c.newComparedCall(noRoot, gridText(dims, periodic, reorder))
	order := make([]int, grid.Size(dims)) // the rank at each place of the grid
	for i := range order {
		order[i] = i
	}
	if reorder {
		hosts, err := s.hosts()
		if err != nil {
			return nil, c.failColl("Cart", err)
		}
		order = grid.Place(dims, hosts)
	}
	child, err := s.finish(order)
	if child == nil {
		return nil, c.failColl("Cart", err)
	}
	return &Cart{child, slices.Clone(dims), slices.Clone(periodic)}, nil
}

func (c *Comm) checkGrid(dims []int, periodic []bool) error {
	if len(dims) != len(periodic) {
		return fmt.Errorf("%w: %d dimensions, but %d values of periodic", ErrCount, len(dims), len(periodic))
	}
	size := 1
	for _, d := range dims {
		if d < 1 || d > c.size/size {
			return fmt.Errorf("%w: a grid of %v; %s has %d ranks", ErrArg, dims, c.Name(), c.size)
		}
		size *= d
	}
	return nil
}

// gridText describes a grid, such as "4 x 2 periodic, reordered".
func gridText(dims []int, periodic []bool, reorder bool) string {
	var text strings.Builder
	for i, d := range dims {
		if i > 0 {
			text.WriteString(" x ")
		}
		text.WriteString(strconv.Itoa(d))
		if periodic[i] {
			text.WriteString(" periodic")
		}
	}
	if reorder {
		text.WriteString(", reordered")
	}
	return text.String()
}

// Comm returns the communicator of the grid's ranks. It is nil at a rank outside the grid.
func (t *Cart) Comm() *Comm {
	if t == nil {
		return nil
	}
	return t.comm
}

// WithContext returns another handle to the grid, whose collectives on neighbors end with ctx, as calls of
// Comm.WithContext do.
func (t *Cart) WithContext(ctx context.Context) *Cart {
	if t == nil {
		return nil
	}
	return &Cart{t.comm.WithContext(ctx), t.dims, t.periodic}
}

// check refuses a grid that this rank has no place in.
func (t *Cart) check(op string) error {
	if t == nil {
		return asError(op, fmt.Errorf("%w: this rank has no place in the grid: its Cart is nil", ErrComm))
	}
	return nil
}

// Dims returns the size of each dimension. It is nil at a rank outside the grid.
func (t *Cart) Dims() []int {
	if t == nil {
		return nil
	}
	return slices.Clone(t.dims)
}

// Periodic reports which dimensions are periodic. It is nil at a rank outside the grid.
func (t *Cart) Periodic() []bool {
	if t == nil {
		return nil
	}
	return slices.Clone(t.periodic)
}

// Coords returns the coordinates of a rank (MPI 4.1, 8.5.5).
func (t *Cart) Coords(rank int) ([]int, error) {
	if err := t.check("Coords"); err != nil {
		return nil, err
	}
	if uint(rank) >= uint(t.comm.size) {
		return nil, t.comm.fail("Coords", rank, NoPeer, fmt.Errorf("%w: the grid has ranks 0 to %d",
			ErrRank, t.comm.size-1))
	}
	return grid.Coords(t.dims, rank), nil
}

// RankAt returns the rank at the given coordinates. In a periodic dimension, any coordinate is valid.
func (t *Cart) RankAt(coords ...int) (int, error) {
	if err := t.check("RankAt"); err != nil {
		return 0, err
	}
	if len(coords) != len(t.dims) {
		return 0, t.comm.failColl("RankAt", fmt.Errorf("%w: %d coordinates for a grid of dimensions "+
			"%v", ErrCount, len(coords), t.dims))
	}
	inside := make([]int, len(coords))
	for d, at := range coords {
		if inside[d] = at; t.periodic[d] {
			inside[d] = (at%t.dims[d] + t.dims[d]) % t.dims[d]
		}
		if uint(inside[d]) >= uint(t.dims[d]) {
			return 0, t.comm.failColl("RankAt", fmt.Errorf("%w: coordinates %v in a grid of %v", ErrArg,
				coords, t.dims))
		}
	}
	return grid.Rank(t.dims, inside), nil
}

// Shift returns the ranks from which this rank receives and to which it sends when all ranks send by steps
// along a dimension (MPI 4.1, 8.5.6). It returns ProcNull beyond an edge, for a dimension that does not
// exist, and at a rank outside the grid.
func (t *Cart) Shift(dim, by int) (src, dst int) {
	if t == nil {
		return ProcNull, ProcNull
	}
	if uint(dim) >= uint(len(t.dims)) {
		return ProcNull, ProcNull
	}
	size := t.dims[dim]
	if t.periodic[dim] {
		by %= size
	} else {
		by = max(-size, min(by, size)) // beyond an edge from anywhere
	}
	return t.at(dim, -by), t.at(dim, by)
}

// at is the rank by steps away along a dimension, no more steps than the dimension has ranks.
func (t *Cart) at(dim, by int) int {
	coords, size := grid.Coords(t.dims, t.comm.rank), t.dims[dim]
	if t.periodic[dim] {
		coords[dim] = (coords[dim] + by + size) % size
	} else if uint(coords[dim]+by) >= uint(size) {
		return ProcNull
	} else {
		coords[dim] += by
	}
	return grid.Rank(t.dims, coords)
}

// Sub splits the grid into subgrids that have only the dimensions marked in keep, one for each combination of
// the other coordinates (MPI 4.1, 8.5.7). All ranks of the grid call it.
func (t *Cart) Sub(keep ...bool) (*Cart, error) {
	if err := t.check("Sub"); err != nil {
		return nil, err
	}
	c := t.comm
	err := c.check()
	if err == nil && len(keep) != len(t.dims) {
		err = fmt.Errorf("%w: %d values of keep for %d dimensions", ErrCount, len(keep), len(t.dims))
	}
	if err != nil {
		return nil, c.failColl("Sub", err)
	}
	sub := &Cart{}
	var at, others, otherDims []int
	for d, coord := range grid.Coords(t.dims, c.rank) {
		if keep[d] {
			sub.dims, sub.periodic, at = append(sub.dims, t.dims[d]), append(sub.periodic, t.periodic[d]),
				append(at, coord)
		} else {
			otherDims, others = append(otherDims, t.dims[d]), append(others, coord)
		}
	}
	if sub.comm, err = c.split(grid.Rank(otherDims, others), grid.Rank(sub.dims, at)); err != nil {
		return nil, c.failColl("Sub", err)
	}
	return sub, nil
}

// neighbors are, for each dimension, the one below and then the one above (MPI 4.1, 8.6).
func (t *Cart) neighbors() *coll.Neighbors {
	n := &coll.Neighbors{Paired: true}
	for d := range t.dims {
		below, above := t.Shift(d, 1)
		n.Sources = append(n.Sources, below, above)
	}
	n.Destinations = n.Sources
	return n
}
