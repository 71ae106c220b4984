package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Scatter gives every rank its block of in at root, in rank order (MPI 4.1, 6.6). All ranks pass the same
// length of out; in is used at root alone and is Size times as long. out may be InPlace at root: its block
// stays in in.
func Scatter[T any](c *Comm, in, out []T, root int) error { return run(scatter(c, in, out, root)) }

// Iscatter begins a Scatter. The buffers must not be touched until the request is complete, in not be
// changed.
func Iscatter[T any](c *Comm, in, out []T, root int) (Request, error) {
	return start(scatter(c, in, out, root))
}

// ScatterInit sets up a Scatter to be started again and again.
func ScatterInit[T any](c *Comm, in, out []T, root int) (*Persistent, error) {
	return setUp(scatter(c, in, out, root))
}

func scatter[T any](c *Comm, in, out []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpScatter)
	if !a.rooted(root) {
		noInPlace(&a, "out", out)
		a.call.Count = len(out)
		buffers(&a, nil, out)
		return a
	}
	noInPlace(&a, "in", in)
	block := whole(&a, "in", in)
	if isInPlace(out) {
		out = in[min(a.call.Rank*block, len(in)):][:block]
	} else if len(out) != block {
		a.fail(ErrCount, "%d elements in for each rank, room for %d", block, len(out))
	}
	a.call.Count = block
	buffers(&a, in, out)
	return a
}

// Scatterv is Scatter with blocks of different lengths (MPI 4.1, 6.6.2): the block of rank i is counts[i]
// elements of in at root from displs[i] on. Without displs blocks follow one another. counts and displs are
// used at root alone, and only during the call.
func Scatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) error {
	return run(scatterv(c, in, counts, displs, out, root))
}

// Iscatterv begins a Scatterv. The buffers must not be touched until the request is complete, in not be
// changed.
func Iscatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (Request, error) {
	return start(scatterv(c, in, counts, displs, out, root))
}

// ScattervInit sets up a Scatterv to be started again and again.
func ScattervInit[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (*Persistent, error) {
	return setUp(scatterv(c, in, counts, displs, out, root))
}

func scatterv[T any](c *Comm, in []T, counts, displs []int, out []T, root int) (a collectiveCall) {
	begin[T](&a, c, coll.OpScatterv)
	if !a.rooted(root) {
		noInPlace(&a, "out", out)
		a.call.Count = len(out)
		buffers(&a, nil, out)
		return a
	}
	noInPlace(&a, "in", in)
	a.call.Send = a.layout(a.call.Size, "in", counts, displs, len(in))
	own := part(&a, a.call.Send, in, a.call.Rank)
	if isInPlace(out) {
		out = own
	} else if len(out) != len(own) {
		a.fail(ErrCount, "%d elements in for this rank, room for %d", len(own), len(out))
	}
	a.call.Count = len(own)
	buffers(&a, in, out)
	return a
}
