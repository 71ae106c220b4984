package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Alltoall sends block i of in to rank i and stores the block from rank i as block i of out (MPI 4.1, 6.8).
// All ranks pass the same length of in and of out, a multiple of Size. in may be InPlace, at all ranks: the
// blocks are then sent from out.
func Alltoall[T any](c *Comm, in, out []T) error {
	if mayRepeat[T](c) && len(in) == len(out) && len(in)%c.size == 0 && disjoint(memory(in), memory(out)) {
		key := callKey{operation: coll.OpAlltoall, elem: sizeOf[T](), count: len(in) / c.size}
		if done, err := c.repeat(key, bytesIn(in), bytesIn(out)); done {
			return err
		}
	}
	return run(alltoall(c, in, out))
}

// Ialltoall begins an Alltoall. Until the request is complete, out must not be accessed and in must not be
// changed.
func Ialltoall[T any](c *Comm, in, out []T) (Request, error) { return startCall(alltoall(c, in, out)) }

// AlltoallInit sets up an Alltoall that can be started repeatedly.
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

// separate is refuseOverlap without its exception: in place must be said with InPlace.
func (a *collectiveCall) separate() {
	if sameBeginning(a.in, a.out) {
		a.fail(ErrBuffer, "input and output are the same; InPlace stands for that")
	}
	a.refuseOverlap()
}

// Alltoallv is Alltoall with blocks of different lengths (MPI 4.1, 6.8.2). The block for rank i has
// scounts[i] elements and begins at in[sdispls[i]]; the block from rank i has rcounts[i] elements and begins
// at out[rdispls[i]]. If the displacements are nil, the blocks follow one another. The length that a rank
// sends to another must equal the length that the other expects. weft uses counts and displacements only
// during the call. in may be InPlace, at all ranks: the blocks are then sent from out, and scounts and
// sdispls are not used.
func Alltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) error {
	return run(alltoallv(c, in, scounts, sdispls, out, rcounts, rdispls))
}

// Ialltoallv begins an Alltoallv. Until the request is complete, out must not be accessed and in must not be
// changed.
func Ialltoallv[T any](c *Comm, in []T, scounts, sdispls []int, out []T, rcounts, rdispls []int) (Request,
	error) {
	return startCall(alltoallv(c, in, scounts, sdispls, out, rcounts, rdispls))
}

// AlltoallvInit sets up an Alltoallv that can be started repeatedly.
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
