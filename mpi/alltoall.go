package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Alltoall gives every rank its block of in of each rank; in out they lie in the order of the ranks that they
// come from (MPI 4.1, 6.8). All ranks pass the same length of in and of out, a multiple of Size. in may be
// InPlace, at all ranks: blocks are sent from out.
func Alltoall[T any](c *Comm, in, out []T) error { return run(alltoall(c, in, out)) }

// Ialltoall begins an Alltoall. The buffers must not be touched until the request is complete, in not be
// changed.
func Ialltoall[T any](c *Comm, in, out []T) (Request, error) { return start(alltoall(c, in, out)) }

// AlltoallInit sets up an Alltoall to be started again and again.
func AlltoallInit[T any](c *Comm, in, out []T) (*Persistent, error) {
	return setUp(alltoall(c, in, out))
}

func alltoall[T any](c *Comm, in, out []T) (a collectiveCall) {
	begin[T](&a, c, coll.OpAlltoall)
	noInPlace(&a, "out", out)
	if a.call.InPlace = isInPlace(in); !a.call.InPlace && len(in) != len(out) {
		a.fail(ErrCount, "%d elements in, room for %d out", len(in), len(out))
	}
	a.call.Count = whole(&a, "out", out)
	buffers(&a, in, out)
	a.separate()
	return a
}

// separate is disjoint without an exception.
func (a *collectiveCall) separate() {
	if len(a.in) > 0 && len(a.out) > 0 && &a.in[0] == &a.out[0] {
		a.fail(ErrBuffer, "input and output are the same; InPlace stands for that")
	}
	a.disjoint()
}

// Alltoallv is Alltoall with blocks of different lengths (MPI 4.1, 6.8.2): the block for rank i is scounts[i]
// elements of in from sdispls[i] on, that from rank i is rcounts[i] elements of out from rdispls[i] on.
// Without displacements blocks follow one another. What a rank sends to another is as long as what that one
// expects. Counts and displacements are used only during the call. in may be InPlace, at all ranks: blocks
// are sent from out, and scounts and sdispls are not used.
func Alltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	return run(alltoallv(c, in, scounts, sdispls, out, rcounts, rdispls))
}

// Ialltoallv begins an Alltoallv. The buffers must not be touched until the request is complete, in not be
// changed.
func Ialltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request,
	error) {
	return start(alltoallv(c, in, scounts, sdispls, out, rcounts, rdispls))
}

// AlltoallvInit sets up an Alltoallv to be started again and again.
func AlltoallvInit[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) (*Persistent, error) {
	return setUp(alltoallv(c, in, scounts, sdispls, out, rcounts, rdispls))
}

func alltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) (a collectiveCall) {
	begin[T](&a, c, coll.OpAlltoallv)
	noInPlace(&a, "out", out)
	a.call.Recv = a.layout(a.call.Size, "out", rcounts, rdispls, len(out))
	if a.call.InPlace = isInPlace(in); a.call.InPlace {
		a.call.Send = a.call.Recv
	} else {
		a.call.Send = a.layout(a.call.Size, "in", scounts, sdispls, len(in))
	}
	if a.err == nil && a.call.Send.Counts[a.call.Rank] != a.call.Recv.Counts[a.call.Rank] {
		a.fail(ErrCount, "%d elements for this rank itself, room for %d", a.call.Send.Counts[a.call.Rank],
			a.call.Recv.Counts[a.call.Rank])
	}
	buffers(&a, in, out)
	a.separate()
	return a
}
