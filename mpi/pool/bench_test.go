package pool

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// emptyTasks prints how many empty tasks a second the ranks do, once all workers have started.
var emptyTasks = body("empty-tasks", func(ctx context.Context, c *mpi.Comm) error {
	empty := func(context.Context, int) (struct{}, error) { return struct{}{}, nil }
	var seconds float64
	for _, n := range []int{100, 1_000_000} {
		begin := mpi.Wtime()
		for _, err := range Map(ctx, c, count(n), empty) {
			if err != nil {
				return err
			}
		}
		seconds = mpi.Wtime() - begin
	}
	if c.Rank() == 0 {
		fmt.Print(1e6 / seconds)
	}
	return nil
})

// BenchmarkMap tells how many empty tasks a second four ranks do, one of which gives them out:
//
//	go test ./mpi/pool -run '^$' -bench Map -benchtime 5x
func BenchmarkMap(b *testing.B) {
	best := 0.0
	for b.Loop() {
		r := launchertest.Run(b, launchertest.Ranks(4, emptyTasks))
		require.NoError(b, r.Failure, "%s%s", r.Out, r.Err)
		rate, err := strconv.ParseFloat(r.Out, 64)
		require.NoError(b, err)
		best = max(best, rate)
	}
	b.ReportMetric(best, "tasks/s")
	b.ReportMetric(0, "ns/op")
}
