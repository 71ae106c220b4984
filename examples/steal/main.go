// Steal shares work of unequal size: a rank that has done its tasks takes those of others.
//
//	weft run -n 4 ./examples/steal
//
// Each rank has a counter in a window, the number of its next task. FetchAndOp takes that task, whoever asks:
// it adds one, and gives what was there. So each task is done once, with no master that hands them out.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
)

const tasks = 200 // of each rank; those of rank r are r+1 times as long as those of rank 0

func main() {
	log.SetFlags(0)
	log.SetPrefix("steal: ")
	if err := mpi.Run(context.Background(), share); err != nil {
		log.Fatal(err)
	}
}

func share(_ context.Context, world *mpi.Comm) error {
	next, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	if err := next.LockAll(); err != nil {
		return err
	}
	done := make([]int64, 3) // tasks, those that were another rank's, and the sum of what they found
	for i := range world.Size() {
		owner := (world.Rank() + i) % world.Size() // its own tasks first
		for {
			task, err := next.FetchAndOp(1, owner, 0, mpi.Sum[int64]())
			if err != nil {
				return err
			}
			if task >= tasks {
				break
			}
			done[0]++
			if i > 0 {
				done[1]++
			}
			done[2] += steps(task+1, 100*(owner+1))
		}
	}
	if err := next.UnlockAll(); err != nil {
		return err
	}
	fmt.Printf("rank %d has done %d tasks, %d of them of other ranks\n", world.Rank(), done[0], done[1])
	if err := mpi.Allreduce(world, mpi.InPlace[int64](), done, mpi.Sum[int64]()); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("%d tasks, %d steps\n", done[0], done[2])
	}
	return next.Free()
}

// steps returns how many steps of the Collatz sequence lead from numbers from n on to 1.
func steps(n int64, many int) (all int64) {
	for x := n; x < n+int64(many); x++ {
		for y := x; y != 1; all++ {
			if y%2 == 0 {
				y /= 2
			} else {
				y = 3*y + 1
			}
		}
	}
	return all
}
