package mpi_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestBcastView(t *testing.T) { atSizes(t, bcastView) }

// Ranks have the elements in views of their own: one in a piece, others strided or in any order.
var bcastView = body("BcastView", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	for _, n := range []int{0, 1, 12, 20_000} {
		for root := range size {
			data := make([]int32, 3*n)
			view := []mpi.View[int32]{
				mpi.Strided(data, n, 1, 3), mpi.Strided(data, 1, n, n), backwards(data, n),
			}[(me+root)%3]
			want := make([]int32, n)
			for i := range want {
				want[i] = int32(i + root + 1)
			}
			if me == root {
				view.Unpack(want)
			}
			if err := mpi.BcastView(world, view, root); err != nil {
				return err
			}
			got := make([]int32, n)
			view.Pack(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("%d elements of rank %d: %v", n, root, got[:min(n, 20)])
			}
			others := 0
			for _, v := range data {
				if v != 0 {
					others++
				}
			}
			if others != n {
				return fmt.Errorf("%d elements of rank %d: %d have changed", n, root, others)
			}
		}
	}
	data := make([]int32, 2)
	twice := mpi.Indexed(data, []int{0, 0}, []int{1, 1})
	if me > 0 { // refused before it is called at any rank
		if err := wantMisuse("BcastView", mpi.BcastView(world, twice, 0), mpi.ErrBuffer); err != nil {
			return err
		}
	}
	return wantMisuse("BcastView", mpi.BcastView(world, twice, size), mpi.ErrRoot)
})

// backwards is every third of n elements, in the opposite order.
func backwards(data []int32, n int) mpi.View[int32] {
	at, length := make([]int, n), make([]int, n)
	for i := range at {
		at[i], length[i] = 3*(n-1-i), 1
	}
	return mpi.Indexed(data, at, length)
}
