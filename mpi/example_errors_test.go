package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

// Every call on the handle that WithContext returns ends with the context.
func ExampleComm_WithContext() {
	run(2, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			return nil // and sends nothing
		}
		soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		buf := make([]int, 1)
		_, err := mpi.Recv(world.WithContext(soon), buf, 1, 0)
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		fmt.Println("rank 1 has sent nothing in time")
		return nil
	})
	// Output: rank 1 has sent nothing in time
}

// A receive that is no longer needed is cancelled. The wait for it says whether that was in time.
func ExampleRequest_Cancel() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		request, err := mpi.Irecv(world, make([]int, 1), mpi.AnySource, 9)
		if err != nil {
			return err
		}
		if err := request.Cancel(); err != nil {
			return err
		}
		status, err := request.Wait()
		if err != nil {
			return err
		}
		fmt.Println(status.Cancelled())
		return nil
	})
	// Output:
	// true
	// true
}

// An error has the call, the communicator, the ranks and the tag as fields.
func ExampleError() {
	run(2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 0 {
			return mpi.Send(world, []int{1, 2, 3}, 1, 4)
		}
		_, err := mpi.Recv(world, make([]int, 2), 0, 4)
		var e *mpi.Error
		if !errors.As(err, &e) {
			return err
		}
		fmt.Println(e.Op, "with", e.Peer, "tag", e.Tag, "on", e.Comm)
		fmt.Println(errors.Is(err, mpi.ErrTruncate))
		return nil
	})
	// Output:
	// Recv with 0 tag 4 on world
	// true
}

// Rank 1 is lost. The others acknowledge it, and go on with a communicator of their own.
func ExampleComm_Shrink() {
	runSurviving(3, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			os.Exit(1)
		}
		err := mpi.Barrier(world)
		if !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("the loss of rank 1 shows: %w", err)
		}
		if err := world.Revoke(); err != nil { // others may wait for this rank in world
			return err
		}
		left, err := world.Shrink()
		if err != nil {
			return err
		}
		fmt.Printf("rank %d is rank %d of %d\n", world.Rank(), left.Rank(), left.Size())
		return left.Free()
	})
	// Unordered output:
	// rank 0 is rank 0 of 2
	// rank 2 is rank 1 of 2
}
