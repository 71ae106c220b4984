package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Barrier returns when every rank has called it (MPI 4.1, 6.3).
func Barrier(c *Comm) error {
	if mayRepeat[byte](c) {
		if done, err := c.repeat(callKey{operation: coll.OpBarrier, elem: 1}, nil, nil); done {
			return err
		}
	}
	return run(barrier(c))
}

// Ibarrier begins a Barrier. Its request is complete when every rank has begun it.
func Ibarrier(c *Comm) (Request, error) { return startCall(barrier(c)) }

// BarrierInit sets up a Barrier that can be started repeatedly.
func BarrierInit(c *Comm) (*Persistent, error) { return setUp(barrier(c)) }

func barrier(c *Comm) (a collectiveCall) {
	begin[byte](&a, c, coll.OpBarrier)
	return a
}
