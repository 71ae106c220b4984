package observe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// A goroutine that has not said what it waits for counts as active, in the call that its stack shows.
func TestCountActive_InACall(t *testing.T) {
	list := program.ParseGoroutines(`goroutine 1 [chan receive]:
github.com/weft-mpi/weft/mpi.Barrier(0x1)
	/x/mpi/barrier.go:1 +0x1
main.wait()
	/x/solver.go:30 +0x1

goroutine 7 [runnable]:
github.com/weft-mpi/weft/mpi.Allreduce(0x1)
	/x/mpi/reduce.go:1 +0x1
main.solve()
	/x/solver.go:41 +0x1

goroutine 8 [sleep]:
time.Sleep(0x1)
	/go/src/runtime/time.go:1 +0x1
main.rest()
	/x/solver.go:50 +0x1
`)
	for _, c := range []struct {
		waiting []uint64
		want    snapshot.Rank
	}{
		{[]uint64{1}, snapshot.Rank{Active: 2, At: "solver.go:41", Call: "Allreduce"}},
		{[]uint64{1, 7}, snapshot.Rank{Active: 1, At: "solver.go:50"}},
		{[]uint64{1, 7, 8}, snapshot.Rank{}},
	} {
		waiting := map[uint64]bool{}
		for _, id := range c.waiting {
			waiting[id] = true
		}
		var got snapshot.Rank
		countActive(&got, list, waiting)
		require.Equal(t, c.want, got)
	}
}
