package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Gather concatenates in from all ranks, in rank order, into out at root (MPI 4.1, 6.5). All ranks pass the
// same length of in. Only root uses out, which is Size times as long. in may be InPlace at root: root's block
// is then already at its place in out.
func Gather[T any](c *Comm, in, out []T, root int) error { return run(gather(c, in, out, root)) }

// Igather begins a Gather. Until the request is complete, out must not be accessed and in must not be
// changed.
func Igather[T any](c *Comm, in, out []T, root int) (Request, error) {
	return startCall(gather(c, in, out, root))
}

// GatherInit sets up a Gather that can be started repeatedly.
func GatherInit[T any](c *Comm, in, out []T, root int) (*Persistent, error) {
	return setUp(gather(c, in, out, root))
}

func gather[T any](c *Comm, in, out []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpGather)
	if !a.rooted(root) {
		onlyIn(&a, in)
		return a
	}
	gathered(&a, in, ownBlock(&a, "out", out), out)
	return a
}

// Gatherv is Gather with blocks of different lengths (MPI 4.1, 6.5.2). At root, the block of rank i has
// counts[i] elements and begins at out[displs[i]]. If displs is nil, the blocks follow one another. Only root
// uses counts and displs, and only during the call.
func Gatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) error {
	return run(gatherv(c, in, out, counts, displs, root))
}

// Igatherv begins a Gatherv. Until the request is complete, out must not be accessed and in must not be
// changed.
func Igatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) (Request, error) {
	return startCall(gatherv(c, in, out, counts, displs, root))
}

// GathervInit sets up a Gatherv that can be started repeatedly.
func GathervInit[T any](c *Comm, in, out []T, counts, displs []int, root int) (*Persistent, error) {
	return setUp(gatherv(c, in, out, counts, displs, root))
}

func gatherv[T any](c *Comm, in, out []T, counts, displs []int, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpGatherv)
	if !a.rooted(root) {
		onlyIn(&a, in)
		return a
	}
	a.call.Recv = a.layout(a.call.Size, "out", counts, displs, len(out))
	gathered(&a, in, part(&a, a.call.Recv, out, a.call.Rank), out)
	return a
}
