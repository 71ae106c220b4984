package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestCart(t *testing.T) { atSizes(t, cart) }

// Grids of up to three dimensions, periodic or not: coordinates, ranks and neighbors agree, also in periodic
// dimensions of 1 and 2.
var cart = body("cart", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	for ndims := range 4 {
		for mask := range 1 << ndims {
			dims, periodic := make([]int, ndims), make([]bool, ndims)
			for d := range periodic {
				periodic[d] = mask>>d&1 == 1
			}
			if ndims > 0 {
				if err := mpi.DimsCreate(size, dims); err != nil {
					return err
				}
			}
			if size > 2 && mask == 0 && ndims == 2 {
				dims = []int{size / 2, 2} // 7 ranks: one is left over
			}
			g, err := world.Cart(dims, periodic, mask%2 == 1)
			if err != nil {
				return err
			}
			n := 1
			for _, d := range dims {
				n *= d
			}
			if err := want("is in the grid", g != nil, me < n); err != nil || g == nil {
				if err != nil {
					return err
				}
				continue
			}
			if err := checkCart(g, dims, periodic); err != nil {
				return fmt.Errorf("grid %v, periodic %v: %w", dims, periodic, err)
			}
			if err := g.Comm().Free(); err != nil {
				return err
			}
		}
	}
	if err := farShifts(world); err != nil {
		return err
	}
	_, tooMany := world.Cart([]int{size, 2}, []bool{false, false}, false)
	_, unlike := world.Cart([]int{size}, nil, false)
	_, zero := world.Cart([]int{0}, []bool{false}, false)
	return firstError(wantMisuse("Cart", tooMany, mpi.ErrArg), wantMisuse("Cart", unlike, mpi.ErrCount),
		wantMisuse("Cart", zero, mpi.ErrArg))
})

// farShifts shifts by as much as an int can say.
func farShifts(world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	for _, by := range []int{math.MinInt, math.MinInt + 1, math.MaxInt} {
		for _, periodic := range []bool{true, false} {
			g, err := world.Cart([]int{size}, []bool{periodic}, false)
			if err != nil {
				return err
			}
			wantSrc, wantDst := mpi.ProcNull, mpi.ProcNull
			if periodic {
				wantSrc, wantDst = (me-by%size+size)%size, (me+by%size+size)%size
			}
			src, dst := g.Shift(0, by)
			if err := firstError(want("source", src, wantSrc), want("destination", dst, wantDst),
				g.Comm().Free()); err != nil {
				return fmt.Errorf("shift by %d: %w", by, err)
			}
		}
	}
	return nil
}

func checkCart(g *mpi.Cart, dims []int, periodic []bool) error {
	c := g.Comm()
	me := c.Rank()
	if !slices.Equal(g.Dims(), dims) || !slices.Equal(g.Periodic(), periodic) {
		return fmt.Errorf("it has %v, %v", g.Dims(), g.Periodic())
	}
	seen := map[string]bool{}
	for r := range c.Size() {
		at, err := g.Coords(r)
		if err != nil {
			return err
		}
		seen[fmt.Sprint(at)] = true
		if back, err := g.RankAt(at...); err != nil || back != r {
			return fmt.Errorf("rank %d is at %v, where rank %d is: %v", r, at, back, err)
		}
	}
	if err := want("places", len(seen), c.Size()); err != nil {
		return err
	}
	if _, err := g.Coords(c.Size()); err == nil {
		return fmt.Errorf("coordinates of rank %d", c.Size())
	}
	at, err := g.Coords(me)
	if err != nil {
		return err
	}
	for d := range dims {
		for _, by := range []int{-3, -2, -1, 0, 1, 2, 7} {
			src, dst := g.Shift(d, by)
			for _, side := range []struct{ got, by int }{{dst, by}, {src, -by}} {
				to := slices.Clone(at)
				to[d] += side.by
				expected, err := g.RankAt(to...)
				if err != nil {
					expected = mpi.ProcNull
				}
				if err := want(fmt.Sprintf("shift of %v along %d by %d", at, d, by), side.got,
					expected); err != nil {
					return err
				}
			}
			// Everybody shifts a message.
			got := []int{-1}
			if _, err := mpi.Sendrecv(c, []int{me}, dst, d, got, src, d); err != nil {
				return err
			}
			if src == mpi.ProcNull {
				src = -1
			}
			if err := want("message", got[0], src); err != nil {
				return err
			}
		}
	}
	if src, dst := g.Shift(len(dims), 1); src != mpi.ProcNull || dst != mpi.ProcNull {
		return fmt.Errorf("a shift along a dimension that is not there: %d, %d", src, dst)
	}
	for keep := range 1 << len(dims) {
		flags := make([]bool, len(dims))
		var subDims, subAt []int
		for d := range flags {
			if flags[d] = keep>>d&1 == 1; flags[d] {
				subDims, subAt = append(subDims, dims[d]), append(subAt, at[d])
			}
		}
		sub, err := g.Sub(flags...)
		if err != nil {
			return err
		}
		where, err := sub.Coords(sub.Comm().Rank())
		if err != nil {
			return err
		}
		if !slices.Equal(sub.Dims(), subDims) || !slices.Equal(where, subAt) {
			return fmt.Errorf("kept %v of %v at %v: %v at %v", flags, dims, at, sub.Dims(), where)
		}
		if err := firstError(checkedSum(sub.Comm(), keep), sub.Comm().Free()); err != nil {
			return err
		}
	}
	return nil
}

func TestCart_ReorderBringsNeighborsToOneHost(t *testing.T) { together(t, 4, cartReordered) }

var cartReordered = body("cart reordered", func(_ context.Context, world *mpi.Comm) error {
	host := world.Rank() % 2 // ranks 0 and 2, 1 and 3
	mpi.SetHost(world, uint64(host))
	for _, reorder := range []bool{false, true} {
		g, err := world.Cart([]int{2, 2}, []bool{false, false}, reorder)
		if err != nil {
			return err
		}
		away := 0
		for d := range 2 {
			for _, by := range []int{-1, 1} {
				got := []int{host}
				src, dst := g.Shift(d, by)
				if _, err := mpi.Sendrecv(g.Comm(), []int{host}, dst, 0, got, src, 0); err != nil {
					return err
				}
				if got[0] != host {
					away++
				}
			}
		}
		if err := firstError(want("neighbors on another host", away, 1),
			want("moved", g.Comm().Compare(world) == mpi.Similar, reorder)); err != nil {
			return err
		}
	}
	return nil
})

func TestGraph(t *testing.T) { atSizes(t, graph) }

// Each rank sends to the next one twice, to itself, and to rank 0.
var graph = body("graph", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	destinations := []int{next, me, next, 0}
	sources := []int{previous, previous, me}
	if me == 0 {
		for r := range size {
			sources = append(sources, r)
		}
	}
	for _, reorder := range []bool{false, true} {
		if reorder {
			mpi.SetHost(world, uint64(me%2))
		}
		g, err := world.Graph(sources, destinations, reorder)
		if err != nil {
			return err
		}
		at := g.Comm().Rank()
		if err := want("first destination", g.Destinations()[0], (at+1)%size); err != nil {
			return err
		}
		if err := firstError(want("sources", len(g.Sources()),
			len(sources)+(boolInt(at == 0)-boolInt(me == 0))*size),
			checkedSum(g.Comm(), 1), g.Comm().Free()); err != nil {
			return err
		}
	}
	if size > 1 {
		_, oneSided := world.Graph(nil, []int{next}, false)
		_, beyond := world.Graph([]int{size}, nil, false)
		return firstError(wantMisuse("Graph", oneSided, mpi.ErrArg), wantMisuse("Graph", beyond, mpi.ErrRank))
	}
	return nil
})

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

var leftOverBody = body("a rank is left over by a grid", func(_ context.Context, w *mpi.Comm) error {
	grid, err := w.Cart([]int{2}, []bool{true}, false)
	if err != nil || w.Rank() < 2 {
		return err
	}
	if grid != nil || grid.Comm() != nil || grid.Dims() != nil || grid.Periodic() != nil {
		return errors.New("a rank that is left over has a place in the grid")
	}
	if src, dst := grid.Shift(0, 1); src != mpi.ProcNull || dst != mpi.ProcNull {
		return fmt.Errorf("its neighbors are %d and %d", src, dst)
	}
	_, coords := grid.Coords(0)
	_, rank := grid.RankAt(0)
	_, sub := grid.Sub(true)
	for _, err := range []error{coords, rank, sub} {
		if !errors.Is(err, mpi.ErrComm) {
			return fmt.Errorf("got %v", err)
		}
	}
	return nil
})

// The nil grid of a rank that is left over has errors, and no panic.
func TestCart_OfARankThatIsLeftOver(t *testing.T) { together(t, 3, leftOverBody) }
