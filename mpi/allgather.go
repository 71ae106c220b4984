package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Allgather concatenates in from all ranks, in rank order, into out at every rank (MPI 4.1, 6.7). All ranks
// pass the same length of in, and an out that is Size times as long. in may be InPlace, at all ranks: each
// rank's block is then already at its place in out.
func Allgather[T any](c *Comm, in, out []T) error {
	if mayRepeat[T](c) && len(in)*c.size == len(out) && !isInPlace(in) && !isInPlace(out) {
		key := callKey{operation: coll.OpAllgather, elem: sizeOf[T](), count: len(in)}
		if done, err := c.repeat(key, bytesIn(in), bytesIn(out)); done {
			return err
		}
	}
	return run(allgather(c, in, out))
}

// Iallgather begins an Allgather. Until the request is complete, out must not be accessed and in must not be
// changed.
func Iallgather[T any](c *Comm, in, out []T) (Request, error) {
	return startCall(allgather(c, in, out))
}

// AllgatherInit sets up an Allgather that can be started repeatedly.
func AllgatherInit[T any](c *Comm, in, out []T) (*Persistent, error) {
	return setUp(allgather(c, in, out))
}

func allgather[T any](c *Comm, in, out []T) (a collectiveCall) {
	begin[T](&a, c, coll.OpAllgather)
	gathered(&a, in, ownBlock(&a, "out", out), out)
	return a
}

// Allgatherv is Allgather with blocks of different lengths (MPI 4.1, 6.7.2): the block of rank i has
// counts[i] elements and begins at out[displs[i]]. If displs is nil, the blocks follow one another. All ranks
// pass the same counts. weft uses counts and displs only during the call.
func Allgatherv[T any](c *Comm, in, out []T, counts, displs []int) error {
	return run(allgatherv(c, in, out, counts, displs))
}

// Iallgatherv begins an Allgatherv. Until the request is complete, out must not be accessed and in must not
// be changed.
func Iallgatherv[T any](c *Comm, in, out []T, counts, displs []int) (Request, error) {
	return startCall(allgatherv(c, in, out, counts, displs))
}

// AllgathervInit sets up an Allgatherv that can be started repeatedly.
func AllgathervInit[T any](c *Comm, in, out []T, counts, displs []int) (*Persistent, error) {
	return setUp(allgatherv(c, in, out, counts, displs))
}

func allgatherv[T any](c *Comm, in, out []T, counts, displs []int) (a collectiveCall) {
	begin[T](&a, c, coll.OpAllgatherv)
	a.call.Recv = a.layout(a.call.Size, "out", counts, displs, len(out))
	gathered(&a, in, part(&a, a.call.Recv, out, a.call.Rank), out)
	return a
}
