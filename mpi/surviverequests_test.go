package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// Agreements and Shrinks with requests take place in the order of their calls, with those without.
func TestAgreementsWithRequests(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, agreesWithRequests, fabric) })
}

var agreesWithRequests = body("agrees with requests", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	bit := uint64(1) << c.Rank()
	first, second := ^bit, ^(bit << 8)
	var shrunk *mpi.Comm
	a, err1 := c.Iagree(&first)
	s, err2 := c.Ishrink(&shrunk)
	b, err3 := c.Iagree(&second)
	if err := firstError(err1, err2, err3); err != nil {
		return err
	}
	// requests that are no messages are under way
	if c.Rank() == 1 {
		if err := c.Revoke(); err != nil {
			return err
		}
	}
	third, err := c.Agree(^(bit << 16))
	// by now all that was called before is decided
	if err := firstError(err, mpi.Waitall([]mpi.Request{b, s, a}), want("third", third, ^uint64(7<<16)),
		want("second", second, ^uint64(7<<8)), want("first", first, ^uint64(7))); err != nil {
		return err
	}
	sum := []int{0}
	if err := mpi.Allreduce(shrunk, []int{1}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	_, nothing := c.Iagree(nil)
	if sum[0] != 3 || nothing == nil {
		return fmt.Errorf("%d ranks; Iagree of nil: %v", sum[0], nothing)
	}
	return firstError(shrunk.Free(), c.Free(), mpi.Barrier(world))
})
