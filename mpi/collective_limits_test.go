package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// A peer that keeps no more payload takes a message only when its receive is posted. A collective must get on
// all the same, after messages that fill that memory and that nobody receives before the collective is over.
func TestCollectivesAfterUnexpectedMessagesBeyondTheLimit(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				together(t, n, beyondTheLimit, fabric,
					"WEFT_UNEXPECTED_MAX=64K")
			})
		}
	})
	t.Run("checked", func(t *testing.T) {
		together(t, 3, beyondTheLimit, "WEFT_CHECK=1", "WEFT_UNEXPECTED_MAX=64K")
	})
}

var beyondTheLimit = body("beyondTheLimit", func(_ context.Context, world *mpi.Comm) error {
	const messages, length, tag = 200, 1 << 10, 7
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	var requests []mpi.Request
	for i := range messages {
		r, err := mpi.Isend(world, []byte{length - 1: byte(i)}, next, tag)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	if err := reductions(world); err != nil {
		return err
	}
	for i := range messages {
		buf := make([]byte, length)
		if _, err := mpi.Recv(world, buf, previous, tag); err != nil {
			return err
		}
		if err := want("message", buf[length-1], byte(i)); err != nil {
			return err
		}
	}
	return mpi.Waitall(requests)
})

// Where even short messages go by rendezvous, no send of a collective completes before its receive is posted.
func TestReductionsWhereEveryMessageIsARendezvous(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		for _, n := range []int{2, 5} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				together(t, n, onlyReductions, fabric,
					"WEFT_EAGER_MAX=64")
			})
		}
	})
}

var onlyReductions = body("onlyReductions", func(_ context.Context,
	world *mpi.Comm) error {
	return reductions(world)
})

// reductions reduces vectors of several lengths to and at all ranks.
func reductions(world *mpi.Comm) error {
	size := world.Size()
	for _, count := range []int{4, 9, 33, 64, 500} {
		in, out := make([]float64, count), make([]float64, count)
		for i := range in {
			in[i] = float64(world.Rank()*count + i)
		}
		wanted := float64(size*(size-1)/2*count + size*(count-1))
		if err := mpi.Allreduce(world, in, out, mpi.Sum[float64]()); err != nil {
			return err
		}
		if err := want("Allreduce", out[count-1], wanted); err != nil {
			return err
		}
		if err := mpi.Reduce(world, in, out, mpi.Sum[float64](), size-1); err != nil {
			return err
		}
		if err := mpi.Barrier(world); err != nil {
			return err
		}
		if err := mpi.Bcast(world, out, size-1); err != nil {
			return err
		}
		if err := want("Reduce", out[count-1], wanted); err != nil {
			return err
		}
	}
	return nil
}
