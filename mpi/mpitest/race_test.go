//go:build race

package mpitest_test

import (
	"context"

	"github.com/weft-mpi/weft/mpi"
)

func init() {
	shared := 0
	wrong = append(wrong, program{"a race", runs(2, func(_ context.Context, world *mpi.Comm) error {
		shared += world.Rank()
		return nil
	}), []string{"WARNING: DATA RACE", "race_test.go", `mpitest\.rank0\(\)`, `mpitest\.rank1\(\)`, "race detected during execution of test"}, nil})
}
