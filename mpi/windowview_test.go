package mpi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestWindowViews(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, windowViews, fabric) })
}

// Random views go to random places and come back from there, and nothing else is touched.
var windowViews = body("window views", func(_ context.Context, world *mpi.Comm) error {
	other := 1 - world.Rank()
	random := rand.New(rand.NewPCG(19, uint64(world.Rank())))
	rounds := 30
	if raceDetector {
		rounds = 9
	}
	for round := range rounds {
		n := []int{50, 1_000, 12_000}[round%3]
		win, err := mpi.WinAllocate[int](world, n)
		if err != nil {
			return err
		}
		if err := win.Fence(); err != nil {
			return err
		}
		mine := make([]int, n)
		for i := range mine {
			mine[i] = 1 + i
		}
		for range 4 {
			if err := viewThereAndBack(win, random, mine, other, n); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if err := firstError(refusedPlaces(win, mine, other, n), win.Fence(), win.Free()); err != nil {
			return err
		}
	}
	return nil
})

func viewThereAndBack(win *mpi.Win[int], random *rand.Rand, mine []int, other, n int) error {
	v, order, text := randomView(random, mine)
	count := len(order)
	// a place of as many elements: every second, or all, of some stretch
	step := 1 + random.IntN(2)
	if (count-1)*step >= n {
		step = 1
	}
	from := random.IntN(n - max(count-1, 0)*step)
	place := win.At(from, n-from).Strided(count, 1, step)
	switch {
	case step == 1 && random.IntN(2) == 0:
		place = win.At(from, count)
	case count > 0 && random.IntN(2) == 0:
		place = win.At(from, n-from).Indexed(everyFrom(0, step, count, n-from), nil)
	}
	text = fmt.Sprintf("%.200s to every %d from %d on", text, step, from)
	before, after := make([]int, n), make([]int, n)
	if err := firstError(win.Get(before, other, 0), win.Flush(other), win.PutView(v, other, place),
		win.Flush(other), win.Get(after, other, 0), win.Flush(other)); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	for i, e := range order {
		before[from+i*step] = mine[e]
	}
	if !sameMemory(before, after) {
		return fmt.Errorf("PutView of %s", text)
	}
	back, expected := make([]int, len(mine)), make([]int, len(mine))
	w, order2, text2 := randomView(random, back)
	if len(order2) > n {
		return nil
	}
	if err := firstError(win.GetView(w, other, win.At(0, len(order2))), win.Flush(other)); err != nil {
		return fmt.Errorf("%s: %w", text2, err)
	}
	for i, e := range order2 {
		expected[e] = after[i]
	}
	if !sameMemory(expected, back) {
		return fmt.Errorf("GetView of %.200s", text2)
	}
	return nil
}

// everyFrom is count places from first on, step apart, of n.
func everyFrom(first, step, count, n int) []int {
	at := make([]int, count)
	for i := range at {
		at[i] = min(max(first+i*step, 0), n-1)
	}
	return at
}

func refusedPlaces(win *mpi.Win[int], mine []int, other, n int) error {
	v := mpi.Strided(mine, 3, 1, 2)
	return firstError(
		wantError("a place that is longer", win.PutView(v, other, win.At(0, 4)), mpi.ErrCount),
		wantError("a place after the end", win.PutView(v, other, win.At(n-2, 3)), mpi.ErrRange),
		wantError("a place of less than nothing", win.PutView(mpi.Strided(mine, 1, 1, 1), other,
			win.At(n, 1-1<<61)), mpi.ErrRange), // of as many bytes as the view, where that overflows
		wantError("a place before the beginning", win.GetView(v, other, win.At(-1, 3)), mpi.ErrRange),
		wantError("a selection that does not fit", win.GetView(v, other, win.At(0, 4).Strided(3, 1, 2)),
			mpi.ErrCount),
		wantError("a place with an element twice", win.PutView(v, other, win.At(0, 4).Strided(3, 1, 0)),
			mpi.ErrBuffer),
		wantError("a view with an element twice", win.GetView(mpi.Strided(mine, 3, 1, 0), other,
			win.At(0, 3)), mpi.ErrBuffer),
		wantError("a view that does not fit", win.GetView(mpi.Strided(mine[:2], 3, 1, 1), other,
			win.At(0, 3)), mpi.ErrCount),
		wantError("no such rank", win.PutView(v, 2, win.At(0, 3)), mpi.ErrRank),
		win.PutView(v, mpi.ProcNull, win.At(0, 3)),
	)
}

func TestZeroPlace(t *testing.T) { together(t, 1, zeroPlace) }

// The zero Place selects nothing, and so do selections of nothing from it.
var zeroPlace = body("zero place", func(_ context.Context, world *mpi.Comm) error {
	var zero mpi.Place[int64]
	nothing := zero.Strided(0, 1, 1)
	win, err := mpi.WinAllocate[int64](world, 4)
	if err != nil {
		return err
	}
	none, one := mpi.Whole[int64](nil), mpi.Whole([]int64{1})
	return firstError(want("elements", nothing.Len(), 0), win.Fence(),
		win.PutView(none, 0, zero), win.PutView(none, 0, nothing), win.GetView(none, 0, nothing),
		wantError("PutView of an element", win.PutView(one, 0, nothing), mpi.ErrCount),
		wantError("GetView of an element", win.GetView(one, 0, nothing), mpi.ErrCount),
		win.Free())
})
