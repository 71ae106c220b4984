package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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
	if len(c.Stats().Endpoints) == 0 { // rank 1 has revoked the communicator by now
		return errors.New("no counters of this rank on a revoked communicator")
	}
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

// Agreements and Shrinks end with their context while those called before are not decided.
func TestAgreementsEndBeforeTheirTurn(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, agreementsGivenUp, fabric) })
}

// endsWhenAwaited is a context that ends when something waits for its end.
type endsWhenAwaited struct {
	context.Context
	cancel atomic.Pointer[context.CancelFunc]
}

func (c *endsWhenAwaited) Done() <-chan struct{} {
	if cancel := c.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	return c.Context.Done()
}

// Rank 1 is late, so the calls of rank 0 after the first wait for their turn. An agreement that is given up
// meanwhile has this rank's flag at the others, and leaves its own alone.
var agreementsGivenUp = body("agreements given up", func(_ context.Context, world *mpi.Comm) error {
	for _, call := range []struct {
		name  string
		agree func(c *mpi.Comm, flag *uint64) error
	}{
		{"Agree", func(c *mpi.Comm, flag *uint64) error { return ignoring(c.Agree(*flag)) }},
		{"Iagree", func(c *mpi.Comm, flag *uint64) error { return wait(c.Iagree(flag)) }},
		{"Shrink", func(c *mpi.Comm, _ *uint64) error { return ignoring(c.Shrink()) }},
		{"Ishrink", func(c *mpi.Comm, _ *uint64) error { return wait(c.Ishrink(new(*mpi.Comm))) }},
	} {
		name := call.name
		c, err := world.Dup()
		if err != nil {
			return err
		}
		first, second, last := uint64(6), uint64(6), uint64(6)
		if c.Rank() == 0 {
			begun, failed := c.Iagree(&first)
			ctx, cancel := context.WithCancel(context.Background())
			awaited := &endsWhenAwaited{Context: ctx}
			early := c.WithContext(awaited)
			awaited.cancel.Store(&cancel)
			if err := firstError(failed, wantError(name, call.agree(early, &second), context.Canceled),
				mpi.Send[byte](world, nil, 1, 0), wait(begun, nil)); err != nil {
				return err
			}
			last, err = c.Agree(last)
			err = firstError(err, want(name+", given up: its flag", second, 6))
		} else {
			_, err = mpi.Recv[byte](world, nil, 0, 0)
			for _, flag := range []*uint64{&first, &second, &last} {
				*flag = 3
				var failed error
				*flag, failed = c.Agree(*flag)
				err = firstError(err, failed)
			}
			if strings.HasSuffix(name, "gree") {
				err = firstError(err, want(name+", given up by another rank: the flag", second, 2))
			}
		}
		if err := firstError(err, want(name+": first", first, 2), want(name+": last", last, 2), c.Free(),
			mpi.Barrier(world)); err != nil {
			return err
		}
	}
	return nil
})
