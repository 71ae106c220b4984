package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// TestFree_GivenUpCollectives: what was sent for collectives that other ranks gave up is kept until the
// communicator is freed, and no longer.
func TestFree_GivenUpCollectives(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		together(t, 2, givenUpBody, fabric, fmt.Sprintf("ROUNDS=%d", testlength.Of(5000, 500)))
	})
	t.Run("checked", func(t *testing.T) { together(t, 2, givenUpBody, "WEFT_CHECK=1", "ROUNDS=200") })
}

var givenUpBody = body("given-up", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	gone, buf := c.WithContext(ended), make([]byte, 13_000)
	for i := range number("ROUNDS") {
		n := 1 + i%2*12_000
		if world.Rank() == 1 { // it never receives what the root sends
			if err := mpi.Scatter(gone, nil, buf[:n], 0); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("round %d: %v", i, err)
			}
		} else if err := mpi.Scatter(c, make([]byte, 2*n), buf[:n], 0); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(world); err != nil { // all has come before
		return err
	}
	if kept := world.Stats().Kept; world.Rank() == 1 && kept < number("ROUNDS")*1000 {
		return fmt.Errorf("only %d bytes were kept", kept)
	}
	if err := firstError(c.Free(), mpi.Barrier(world)); err != nil {
		return err
	}
	// Rank 0 looks first, and then rank 1, while the other sends nothing.
	look := func() error { return want("kept after Free", world.Stats().Kept, 0) }
	turn := make([]byte, 1)
	if world.Rank() == 0 {
		err = look()
		_, received := mpi.Sendrecv(world, turn, 1, 0, make([]byte, 1), 1, 0)
		return firstError(err, received)
	}
	if _, err := mpi.Recv(world, turn, 0, 0); err != nil {
		return err
	}
	err = look()
	return firstError(err, mpi.Send(world, turn, 0, 0))
})
