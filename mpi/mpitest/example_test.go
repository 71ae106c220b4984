package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// The test that calls an example.
var t *testing.T

// TestExamples runs the examples: each is the body of a test.
func TestExamples(test *testing.T) {
	for name, example := range map[string]func(){"Run": ExampleRun, "Sizes": ExampleSizes, "T": ExampleT,
		"time": ExampleRun_time, "AllocOn": ExampleRun_allocOn} {
		test.Run(name, func(test *testing.T) {
			t = test
			example()
		})
	}
}

// ring sends a token around the ranks, and counts them.
func ring(world *mpi.Comm) (int, error) {
	token := []int{1}
	next, previous := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	if world.Rank() > 0 {
		if _, err := mpi.Recv(world, token, previous, 0); err != nil {
			return 0, err
		}
		token[0]++
	}
	request, err := mpi.Isend(world, token, next, 0)
	if err != nil {
		return 0, err
	}
	count := token
	if world.Rank() == 0 {
		count = make([]int, 1)
		if _, err := mpi.Recv(world, count, previous, 0); err != nil {
			return 0, err
		}
	}
	_, err = request.Wait()
	return count[0], err
}

// A function that runs on all ranks is called by the body of Run.
func ExampleRun() {
	mpitest.Run(t, 4, func(_ context.Context, world *mpi.Comm) error {
		n, err := ring(world)
		if err != nil {
			return err
		}
		if world.Rank() == 0 && n != 4 {
			return fmt.Errorf("the ring has counted %d ranks", n)
		}
		return nil
	})
}

// Mistakes are often in one rank, two, odd numbers, or those that are no powers of two.
func ExampleSizes() {
	mpitest.Sizes(t, []int{1, 2, 3, 4, 7, 8}, func(_ context.Context, world *mpi.Comm) error {
		n, err := ring(world)
		if err == nil && world.Rank() == 0 && n != world.Size() {
			err = fmt.Errorf("the ring has counted %d ranks", n)
		}
		return err
	})
}

// T takes the place of the *testing.T in a body, for assertions too.
func ExampleT() {
	mpitest.Run(t, 3, func(ctx context.Context, world *mpi.Comm) error {
		t := mpitest.T(ctx)
		n, err := ring(world)
		if err != nil {
			t.Fatal(err)
		}
		t.Log("the token said", n) // rank 2: the token said 3
		return nil
	})
}

// Time passes only when no rank can go on without it. So a deadline is tested without waiting for it.
func ExampleRun_time() {
	mpitest.Run(t, 2, func(ctx context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			time.Sleep(time.Hour)
			return nil
		}
		soon, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := mpi.Recv(world.WithContext(soon), make([]int, 1), 1, 0)
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

// Registered memory belongs to a rank, so it comes from AllocOn, which names one.
func ExampleRun_allocOn() {
	mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
		buf, err := mpi.AllocOn[float64](world, 1024)
		if err != nil {
			return err
		}
		if err := mpi.Bcast(world, buf, 0); err != nil {
			return err
		}
		return mpi.FreeOn(world, buf)
	})
}
