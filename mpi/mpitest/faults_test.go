package mpitest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// sumOfSteps has the ranks that are left add 1 to a common number in each of some steps. Each keeps a copy of
// the number, a checkpoint in its memory, and those that are left go on from there.
func sumOfSteps(_ context.Context, world *mpi.Comm) error {
	const steps = 4
	comm, state := world, make([]byte, 8)
	for step := 0; step < steps; {
		total := make([]int, 1)
		err := mpi.Allreduce(comm, []int{1}, total, mpi.Sum[int]())
		if err == nil {
			binary.LittleEndian.PutUint64(state, uint64(step+1))
		}
		all, agreed := comm.Agree(uint64(boolToInt(err == nil)))
		if all == 1 && agreed == nil {
			step++
			continue
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		if err := comm.Revoke(); err != nil {
			return err
		}
		next, err := comm.Shrink()
		if err != nil {
			return err
		}
		if comm != world {
			if err := comm.Free(); err != nil && !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
		}
		comm = next
		done := make([]int, 1) // those that have done the step go back to the others
		if err := mpi.Allreduce(comm, []int{step}, done, mpi.Min[int]()); err != nil {
			return err
		}
		step = done[0]
	}
	if comm.Size() < world.Size()-1 {
		return fmt.Errorf("%d of %d ranks are left", comm.Size(), world.Size())
	}
	if comm != world {
		return comm.Free()
	}
	return nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestKillEach(t *testing.T) { mpitest.KillEach(t, 3, 1, sumOfSteps) }

// A rank that is killed does nothing more, and the others learn of it.
func TestKill(t *testing.T) {
	reached := false
	mpitest.Run(t, 2, func(_ context.Context, world *mpi.Comm) error {
		if world.Rank() == 1 {
			for range 3 {
				if err := mpi.Send(world, []int{1}, 0, 0); err != nil {
					return err
				}
			}
			reached = true
			return nil
		}
		var err error
		for range 3 {
			if _, err = mpi.Recv(world, make([]int, 1), 1, 0); err != nil {
				break
			}
		}
		if !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("a receive from the rank that is killed: %w", err)
		}
		return nil
	}, mpitest.Kill(1, 3))
	require.False(t, reached)
}

// What goes over a slow link comes last.
func TestSlowLink(t *testing.T) {
	for seed := range uint64(8) {
		mpitest.Run(t, 4, func(_ context.Context, world *mpi.Comm) error {
			if world.Rank() > 0 {
				return mpi.Send(world, []int{1}, 0, 0)
			}
			for last := 0; ; last++ {
				st, err := mpi.Recv(world, make([]int, 1), mpi.AnySource, 0)
				switch {
				case err != nil:
					return err
				case st.Source == 2 && last < 2:
					return fmt.Errorf("message %d is that of the slow link", last)
				case last == 2:
					return nil
				}
			}
		}, mpitest.SlowLink(0, 2), mpitest.Seed(seed))
	}
}

// A lane that is lost loses no message.
func TestLoseLane(t *testing.T) {
	// Rank 1 sends nothing before the others have connected to it.
	connect := func(world *mpi.Comm) error {
		if world.Rank() != 1 {
			return mpi.Send(world, []byte{1}, 1, 99)
		}
		for range world.Size() - 1 {
			if _, err := mpi.Recv(world, make([]byte, 1), mpi.AnySource, 99); err != nil {
				return err
			}
		}
		return nil
	}
	var lost atomic.Uint64
	for _, after := range []int{20_000, 100_000, 500_000} {
		mpitest.Run(t, 3, func(_ context.Context, world *mpi.Comm) error {
			n := world.Size()
			next, previous := (world.Rank()+1)%n, (world.Rank()+n-1)%n
			out, in := make([]byte, 50_000), make([]byte, 50_000)
			if err := connect(world); err != nil {
				return err
			}
			for round := range 40 {
				for i := range out {
					out[i] = byte(round + i + world.Rank())
				}
				if _, err := mpi.Sendrecv(world, out, next, round, in, previous, round); err != nil {
					return err
				}
				for i, b := range in {
					if b != byte(round+i+previous) {
						return fmt.Errorf("byte %d of round %d is %d", i, round, b)
					}
				}
			}
			for _, c := range world.Stats().Channels {
				lost.Add(c.Lanes.Down)
			}
			return nil
		}, mpitest.Fabric("tcp"), mpitest.LoseLane(1, after))
		require.NotZero(t, lost.Swap(0), "no lane was lost")
	}
	// The only lane of two ranks is the connection.
	require.ErrorContains(t, mpitest.Try(t, 2, func(_ context.Context, world *mpi.Comm) error {
		if err := connect(world); err != nil {
			return err
		}
		_, err := mpi.Sendrecv(world, make([]byte, 1<<20), 1-world.Rank(), 0, make([]byte, 1<<20), 1-world.Rank(), 0)
		return err
	}, mpitest.Fabric("tcp"), mpitest.LoseLane(1, 100_000),
		mpitest.Config(mpi.Config{Settings: map[string]string{"WEFT_LANES": "1"}})), mpi.ErrProcFailed.Error())
}

// A slow rank begins when all others wait.
func TestSlow(t *testing.T) {
	for seed := range uint64(8) {
		var mu sync.Mutex
		var order []int
		mpitest.Run(t, 4, func(_ context.Context, world *mpi.Comm) error {
			mu.Lock()
			order = append(order, world.Rank())
			mu.Unlock()
			return mpi.Barrier(world)
		}, mpitest.Slow(2), mpitest.Seed(seed))
		require.Equal(t, 2, order[3])
	}
}
