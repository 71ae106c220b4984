package mpi_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// A collective allocates nothing once its schedule has grown: short and long, blocking and not.
func TestCollectivesAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	onFabrics(t, func(t *testing.T, fabric string) {
		sizes := []int{2, 3}
		if fabric == "WEFT_FABRIC=tcp" {
			sizes = []int{3} // the schedules are those of shared memory
		}
		for _, n := range sizes {
			t.Run(fmt.Sprint(n), func(t *testing.T) { ranks(t, n, collectivesAllocate, fabric) })
		}
	})
}

var collectivesAllocate = body("collectivesAllocate", func(_ context.Context, world *mpi.Comm) error {
	size := world.Size()
	lengths := []int{1, 60}
	if os.Getenv("WEFT_FABRIC") == "shm" {
		lengths = append(lengths, 1000, 5000) // over TCP a rendezvous allocates by itself
	}
	for _, n := range lengths {
		in, out := make([]float64, n*size), make([]float64, n*size)
		persistent, err := mpi.AllreduceInit(world, in, out, mpi.Sum[float64]())
		if err != nil {
			return err
		}
		views := func(b []float64) (list []mpi.View[float64]) {
			for i := range size {
				list = append(list, mpi.Strided(b[i:], n, 1, size))
			}
			return list
		}
		inViews, outViews := views(in), views(out)
		persistentViews, err := mpi.AlltoallViewInit(world, inViews, outViews)
		if err != nil {
			return err
		}
		wait := func(r mpi.Request, err error) error {
			if err == nil {
				_, err = r.Wait()
			}
			return err
		}
		for _, c := range []struct {
			name string
			call func() error
		}{
			{"Barrier", func() error { return mpi.Barrier(world) }},
			{"Bcast", func() error { return mpi.Bcast(world, in, 0) }},
			{"Reduce", func() error { return mpi.Reduce(world, in, out, mpi.Sum[float64](), 0) }},
			{"Allreduce", func() error { return mpi.Allreduce(world, in, out, mpi.Max[float64]()) }},
			{"Gather", func() error { return mpi.Gather(world, in[:n], out, 0) }},
			{"Scatter", func() error { return mpi.Scatter(world, in, out[:n], 0) }},
			{"Allgather", func() error { return mpi.Allgather(world, in[:n], out) }},
			{"Alltoall", func() error { return mpi.Alltoall(world, in, out) }},
			{"ReduceScatterBlock", func() error {
				return mpi.ReduceScatterBlock(world, in, out[:n],
					mpi.Sum[float64]())
			}},
			{"Scan", func() error { return mpi.Scan(world, in, out, mpi.Sum[float64]()) }},
			{"Ibarrier", func() error { return wait(mpi.Ibarrier(world)) }},
			{"Iallreduce", func() error { return wait(mpi.Iallreduce(world, in, out, mpi.Sum[float64]())) }},
			{"AlltoallView", func() error { return mpi.AlltoallView(world, inViews, outViews) }},
			{"AlltoallViewInit", func() error { return wait(persistentViews.Start()) }},
			{"AllreduceInit", func() error { return wait(persistent.Start()) }},
		} {
			var failure error
			// A rank that is ahead fills the others' memory for unexpected messages: so they stay in step.
			round := func() {
				if failure == nil {
					failure = firstError(c.call(), mpi.Barrier(world))
				}
			}
			for range 20 {
				round()
			}
			allocated := allocationsPerRound(round)
			if failure == nil && allocated > 0 {
				failure = fmt.Errorf("%s of %d elements allocates %v times", c.name, n, allocated)
			}
			if failure != nil {
				return failure
			}
			if err := mpi.Barrier(world); err != nil {
				return err
			}
		}
		if err := firstError(persistent.Free(), persistentViews.Free()); err != nil {
			return err
		}
	}
	return nil
})
