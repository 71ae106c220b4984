package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weft-mpi/weft/mpi"
)

func TestBlocksTileThePlate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 100).Draw(t, "ranks")
		p := problem{Width: rapid.IntRange(1, 80).Draw(t, "width"),
			Height: rapid.IntRange(1, 80).Draw(t, "height")}
		var err error
		if p.Columns, p.Rows, err = split(ranks, p.Width, p.Height); err != nil {
			for columns := 1; columns <= ranks; columns++ {
				if ranks%columns == 0 && columns <= p.Width && ranks/columns <= p.Height {
					t.Fatalf("a grid of %d × %d fits, and was not found: %v", columns, ranks/columns, err)
				}
			}
			return
		}
		require.Equal(t, ranks, p.Columns*p.Rows)

		owners := make([]int, p.Width*p.Height)
		largest := 0
		for rank := range ranks {
			a := p.area(rank)
			require.Positive(t, a.width)
			require.Positive(t, a.height)
			require.Contains(t, []int{p.Width / p.Columns, p.Width/p.Columns + 1}, a.width)
			require.Contains(t, []int{p.Height / p.Rows, p.Height/p.Rows + 1}, a.height)
			largest = max(largest, a.width*a.height)
			for y := a.y; y < a.y+a.height; y++ {
				for x := a.x; x < a.x+a.width; x++ {
					require.Zero(t, owners[y*p.Width+x], "cell %d, %d is also in the block of rank %d", x,
						y, rank)
					owners[y*p.Width+x] = rank + 1
				}
			}
		}
		require.NotContains(t, owners, 0, "a cell is in no block")
		require.Equal(t, largest, p.largest())

		// The neighbor on a side is the one that owns the cells there.
		owner := func(x, y int) int {
			if x < 0 || x >= p.Width || y < 0 || y >= p.Height {
				return mpi.ProcNull
			}
			return owners[y*p.Width+x] - 1
		}
		for rank := range ranks {
			a := p.area(rank)
			require.Equal(t, owner(a.x-1, a.y), p.neighbor(rank, -1, 0))
			require.Equal(t, owner(a.x+a.width, a.y), p.neighbor(rank, 1, 0))
			require.Equal(t, owner(a.x, a.y-1), p.neighbor(rank, 0, -1))
			require.Equal(t, owner(a.x, a.y+a.height), p.neighbor(rank, 0, 1))
		}
	})
}

func TestTheGridCutsAlongTheFewestCells(t *testing.T) {
	for _, c := range []struct{ ranks, width, height, columns, rows int }{
		{1, 5, 5, 1, 1}, {4, 100, 100, 2, 2}, {6, 300, 200, 3, 2}, {6, 200, 300, 2, 3}, {4, 1000, 10, 4, 1},
		{7, 7, 1, 7, 1}, {7, 1, 7, 1, 7},
	} {
		columns, rows, err := split(c.ranks, c.width, c.height)
		require.NoError(t, err)
		require.Equal(t, []int{c.columns, c.rows}, []int{columns, rows}, "%+v", c)
	}
}
