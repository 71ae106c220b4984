// Command survivor goes on when ranks are lost, until as many are left as its first argument says. The ranks
// of its other arguments kill themselves.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func main() {
	if err := mpi.Run(context.Background(), survive); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func survive(_ context.Context, world *mpi.Comm) error {
	left, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	for _, arg := range os.Args[2:] {
		if arg == fmt.Sprint(world.Rank()) {
			time.AfterFunc(50*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		}
	}
	err = mpi.Barrier(world)
	if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
		return err
	}
	fmt.Println("rank", world.Rank(), "has begun")
	c := world
	for c.Size() > left {
		time.Sleep(time.Millisecond)
		sum := []int{0}
		err := mpi.Allreduce(c, []int{1}, sum, mpi.Sum[int]())
		if err == nil && sum[0] != c.Size() {
			return fmt.Errorf("the sum is %d on %d ranks", sum[0], c.Size())
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) && !errors.Is(err, mpi.ErrRevoked) {
			return err
		}
		well := uint64(1)
		if err != nil {
			well = 0
			if err := c.Revoke(); err != nil {
				return err
			}
		}
		if well, err = c.Agree(well); err == nil && well == 1 {
			continue
		}
		if err != nil && !errors.Is(err, mpi.ErrProcFailed) {
			return err
		}
		if c, err = c.Shrink(); err != nil {
			return err
		}
	}
	if err := mpi.Barrier(c); err != nil {
		return err
	}
	fmt.Println("went on with", c.Size())
	return nil
}
