package mpi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestErrorTexts(t *testing.T) { together(t, 2, errorTexts) }

// The error of a call says what does not fit, and where.
var errorTexts = body("error texts", func(_ context.Context, world *mpi.Comm) error {
	two, three, four := make([]int, 2), make([]int, 3), make([]int, 4)
	win, err := mpi.WinCreate(world, two)
	if err != nil {
		return err
	}
	counts, displs := []int{2, 2}, []int{0, 2}
	for _, c := range []struct {
		err  error
		text string
	}{
		{mpi.Allgather(world, two, two), "out has 2 elements; 2 ranks with 2 each, as in has here, need 4"},
		{mpi.Scatter(world, four, three, world.Rank()),
			"in has 4 elements; 2 ranks with 3 each, as out has here, need 6"},
		{mpi.Allgatherv(world, three, four, counts, displs),
			"in has 3 elements; the counts say 2 for this rank"},
		{win.Put(two, 1-world.Rank(), 0), ", on window world."},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.text) {
			err = firstError(err, want("error", c.err.Error(), c.text))
		}
	}
	return firstError(err, win.Free())
})
