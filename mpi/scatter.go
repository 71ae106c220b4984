package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Scatter sends block i of in at root to rank i, which receives it in out (MPI 4.1, 6.6). All ranks pass the
// same length of out. Only root uses in, which is Size times as long. out may be InPlace at root: root's
// block then stays in in.
func Scatter[T any](c *Comm, in, out []T, root int) error { return run(scatter(c, in, out, root)) }

// Iscatter begins a Scatter. Until the request is complete, out must not be accessed and in must not be
// changed.
func Iscatter[T any](c *Comm, in, out []T, root int) (Request, error) {
	return startCall(scatter(c, in, out, root))
}

// ScatterInit sets up a Scatter that can be started repeatedly.
func ScatterInit[T any](c *Comm, in, out []T, root int) (*Persistent, error) {
	return setUp(scatter(c, in, out, root))
}

func scatter[T any](c *Comm, in, out []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpScatter)
	if !a.rooted(root) {
		onlyOut(&a, out)
		return a
	}
	scattered(&a, in, ownBlock(&a, "in", in), out)
	return a
}

// Scatterv is Scatter with blocks of different lengths (MPI 4.1, 6.6.2). At root, the block of rank i has
// counts[i] elements and begins at in[displs[i]]. If displs is nil, the blocks follow one another. Only root
// uses counts and displs, and only during the call.
func Scatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) error {
	return run(scatterv(c, in, counts, displs, out, root))
}

// Iscatterv begins a Scatterv. Until the request is complete, out must not be accessed and in must not be
// changed.
func Iscatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (Request, error) {
	return startCall(scatterv(c, in, counts, displs, out, root))
}

// ScattervInit sets up a Scatterv that can be started repeatedly.
func ScattervInit[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (*Persistent, error) {
	return setUp(scatterv(c, in, counts, displs, out, root))
}

func scatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpScatterv)
	if !a.rooted(root) {
		onlyOut(&a, out)
		return a
	}
	a.call.Send = a.layout(a.call.Size, "in", counts, displs, len(in))
	scattered(&a, in, part(&a, a.call.Send, in, a.call.Rank), out)
	return a
}
