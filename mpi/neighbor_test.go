package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestNeighborCollectives runs the collectives on neighbors, in all forms, on grids with dimensions of one
// and two ranks, on grids with ends, and on a graph.
func TestNeighborCollectives(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, fabric string) {
		for _, n := range []int{1, 2, 6} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { anywhere(t, n, onNeighbors, fabric) })
		}
	})
}

var onNeighbors = body("onNeighbors", func(_ context.Context, world *mpi.Comm) error {
	size := world.Size()
	for _, dims := range [][]int{{size}, {size, 1}, {size / min(size, 2), min(size, 2)}} {
		for _, periodic := range []bool{true, false} {
			wrap := make([]bool, len(dims))
			for i := range wrap {
				wrap[i] = periodic
			}
			g, err := world.Cart(dims, wrap, false)
			if err != nil {
				return err
			}
			var around []int
			for d := range dims {
				below, above := g.Shift(d, 1)
				around = append(around, below, above)
			}
			opposite := func(i int) int { return i ^ 1 }
			if err := try(neighborhood(g, g.Comm().Rank(), around, around, opposite)); err != nil {
				return fmt.Errorf("grid %v, periodic %v: %w", dims, periodic, err)
			}
			if err := g.Comm().Free(); err != nil {
				return err
			}
		}
	}
	if size > 1 {
		me := world.Rank()
		from, to := []int{(me + 1) % size, (me + size - 1) % size},
			[]int{(me + size - 1) % size, (me + 1) % size}
		g, err := world.Graph(from, to, false)
		if err != nil {
			return err
		}
		if err := try(neighborhood(g, me, from, to, func(i int) int { return i })); err != nil {
			return fmt.Errorf("graph: %w", err)
		}
		if err := g.Comm().Free(); err != nil {
			return err
		}
	}
	if checking() {
		return nil // would count the mistake
	}
	return wantError("of no topology", mpi.NeighborAllgather((*mpi.Cart)(nil), []int{1}, nil), mpi.ErrComm)
})

// neighborhood sends to and receives from neighbors. What a rank gets in block i its neighbor sent as block
// sent(i).
func neighborhood(t mpi.Topology, me int, from, to []int, sent func(int) int) (o []outcome) {
	const n = 3
	block := func(rank, i, length int) []matrix { return matrices(rank, 10*i, 10*i+length) }
	var in, want, gathered, vin, vwant, vgathered []matrix
	var scounts, rcounts, gcounts []int
	length := func(sender, i int) int { return (sender*2 + i) % 4 }
	for i, peer := range to {
		in = append(in, block(me, i, n)...)
		scounts = append(scounts, length(me, i))
		vin = append(vin, block(me, i, scounts[i])...)
		_ = peer
	}
	for i, peer := range from {
		nothing := make([]matrix, n)
		if peer == mpi.ProcNull {
			want, gathered = append(want, nothing...), append(gathered, nothing...)
			rcounts, gcounts = append(rcounts, 0), append(gcounts, 0)
			continue
		}
		k := sent(i)
		want, gathered = append(want, block(peer, k, n)...), append(gathered, matrices(peer, 0, n)...)
		rcounts, gcounts = append(rcounts, length(peer, k)), append(gcounts, peer%3)
		vwant, vgathered = append(vwant, block(peer, k, length(peer, k))...),
			append(vgathered, matrices(peer, 0, peer%3)...)
	}
	// columns, of different lengths, of a matrix each
	column := func(b []matrix, i, columns, n int) mpi.View[matrix] {
		return mpi.Strided(b[min(i, len(b)):], n, 1, columns)
	}
	sent2, got2, want2 := make([]matrix, 3*len(to)), make([]matrix, 3*len(from)), make([]matrix, 3*len(from))
	var inViews, outViews []mpi.View[matrix]
	for i := range to {
		for k, v := range block(me, i, scounts[i]) {
			sent2[k*len(to)+i] = v
		}
		inViews = append(inViews, column(sent2, i, len(to), scounts[i]))
	}
	for i, peer := range from {
		if peer == mpi.ProcNull {
			outViews = append(outViews, column(got2, i, len(from), 3)) // left alone
			continue
		}
		for k, v := range block(peer, sent(i), rcounts[i]) {
			want2[k*len(from)+i] = v
		}
		outViews = append(outViews, column(got2, i, len(from), rcounts[i]))
	}
	own, vown := matrices(me, 0, n), matrices(me, 0, me%3)
	fresh := func(b []matrix) []matrix { return make([]matrix, len(b)) }
	a, b, c, d := fresh(gathered), fresh(vgathered), fresh(want), fresh(vwant)
	return []outcome{
		{"NeighborAllgather", a, fresh(a), gathered, func() error { return mpi.NeighborAllgather(t, own, a) },
			func() (mpi.Request, error) { return mpi.IneighborAllgather(t, own, a) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAllgatherInit(t, own, a) }},
		{"NeighborAllgatherv", b, fresh(b), vgathered, func() error {
			return mpi.NeighborAllgatherv(t, vown,
				b, gcounts, nil)
		},
			func() (mpi.Request, error) { return mpi.IneighborAllgatherv(t, vown, b, gcounts, nil) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAllgathervInit(t, vown, b, gcounts, nil) }},
		{"NeighborAlltoall", c, fresh(c), want, func() error { return mpi.NeighborAlltoall(t, in, c) },
			func() (mpi.Request, error) { return mpi.IneighborAlltoall(t, in, c) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallInit(t, in, c) }},
		{"NeighborAlltoallView", got2, fresh(got2), want2,
			func() error { return mpi.NeighborAlltoallView(t, inViews, outViews) },
			func() (mpi.Request, error) { return mpi.IneighborAlltoallView(t, inViews, outViews) },
			func() (*mpi.Persistent, error) { return mpi.NeighborAlltoallViewInit(t, inViews, outViews) }},
		{"NeighborAlltoallv", d, fresh(d), vwant,
			func() error { return mpi.NeighborAlltoallv(t, vin, scounts, nil, d, rcounts, nil) },
			func() (mpi.Request, error) {
				return mpi.IneighborAlltoallv(t, vin, scounts, nil, d, rcounts,
					nil)
			},
			func() (*mpi.Persistent, error) {
				return mpi.NeighborAlltoallvInit(t, vin, scounts, nil, d, rcounts, nil)
			}},
	}
}
