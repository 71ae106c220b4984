package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Allreduce combines in from all ranks, element by element, into out at every rank (MPI 4.1, 6.9.6). The
// result has the same bits at all ranks. All ranks pass the same length. in may be InPlace, at all ranks.
func Allreduce[T any](c *Comm, in, out []T, op Op[T]) error {
	if done, err := repeatReduction(c, coll.OpAllreduce, in, out, op); done {
		return err
	}
	return run(allreduce(c, in, out, op))
}

// Iallreduce begins an Allreduce. Until the request is complete, out must not be accessed and in must not be
// changed.
func Iallreduce[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return startCall(allreduce(c, in, out, op))
}

// AllreduceInit sets up an Allreduce that can be started repeatedly.
func AllreduceInit[T any](c *Comm, in, out []T, op Op[T]) (*Persistent, error) {
	return setUp(allreduce(c, in, out, op))
}

func allreduce[T any](c *Comm, in, out []T, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpAllreduce)
	by(&a, op)
	reduced(&a, in, out)
	return a
}
