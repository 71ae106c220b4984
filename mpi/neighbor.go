package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// NeighborAllgather sends in to every neighbor and concatenates what they send into out, in the order that
// Topology describes (MPI 4.1, 8.6.1). All ranks pass the same length of in. out is that length times the
// number of neighbors to receive from. For a Cart that number is 2 per dimension, at its edges too.
func NeighborAllgather[T any](t Topology, in, out []T) error {
	return run(neighborAllgather(t, in, out))
}

// IneighborAllgather begins a NeighborAllgather. Until the request is complete, out must not be accessed and
// in must not be changed.
func IneighborAllgather[T any](t Topology, in, out []T) (Request, error) {
	return startCall(neighborAllgather(t, in, out))
}

// NeighborAllgatherInit sets up a NeighborAllgather that can be started repeatedly.
func NeighborAllgatherInit[T any](t Topology, in, out []T) (*Persistent, error) {
	return setUp(neighborAllgather(t, in, out))
}

func neighborAllgather[T any](t Topology, in, out []T) (a collectiveCall) {
	onNeighbors[T](&a, t, coll.OpNeighborAllgather)
	sources, destinations := a.degrees()
	a.call.Count = equalBlocks(&a, "out", out, sources)
	if sources > 0 && destinations > 0 && len(in) != a.call.Count {
		a.fail(ErrCount, "%d elements in, room for %d of each neighbor", len(in), a.call.Count)
	}
	if sources == 0 {
		a.call.Count = len(in)
	}
	a.call.Recv = coll.Even(a.call.Count * a.call.ElemSize)
	neighborBuffers(&a, in, out)
	return a
}

// NeighborAllgatherv is NeighborAllgather with blocks of different lengths: the block of neighbor i has
// counts[i] elements and begins at out[displs[i]]. If displs is nil, the blocks follow one another. weft uses
// counts and displs only during the call.
func NeighborAllgatherv[T any](t Topology, in, out []T, counts, displs []int) error {
	return run(neighborAllgatherv(t, in, out, counts, displs))
}

// IneighborAllgatherv begins a NeighborAllgatherv. Until the request is complete, out must not be accessed
// and in must not be changed.
func IneighborAllgatherv[T any](t Topology, in, out []T, counts, displs []int) (Request, error) {
	return startCall(neighborAllgatherv(t, in, out, counts, displs))
}

// NeighborAllgathervInit sets up a NeighborAllgatherv that can be started repeatedly.
func NeighborAllgathervInit[T any](t Topology, in, out []T, counts, displs []int) (*Persistent, error) {
	return setUp(neighborAllgatherv(t, in, out, counts, displs))
}

func neighborAllgatherv[T any](t Topology, in, out []T, counts, displs []int) (a collectiveCall) {
	onNeighbors[T](&a, t, coll.OpNeighborAllgatherv)
	sources, _ := a.degrees()
	a.call.Count = len(in)
	a.call.Recv = a.layout(sources, "out", counts, displs, len(out))
	neighborBuffers(&a, in, out)
	return a
}

// NeighborAlltoall sends one block of in to each neighbor and concatenates what they send into out, in the
// order that Topology describes (MPI 4.1, 8.6.2). All blocks have the same length, at all ranks.
func NeighborAlltoall[T any](t Topology, in, out []T) error { return run(neighborAlltoall(t, in, out)) }

// IneighborAlltoall begins a NeighborAlltoall. Until the request is complete, out must not be accessed and in
// must not be changed.
func IneighborAlltoall[T any](t Topology, in, out []T) (Request, error) {
	return startCall(neighborAlltoall(t, in, out))
}

// NeighborAlltoallInit sets up a NeighborAlltoall that can be started repeatedly.
func NeighborAlltoallInit[T any](t Topology, in, out []T) (*Persistent, error) {
	return setUp(neighborAlltoall(t, in, out))
}

func neighborAlltoall[T any](t Topology, in, out []T) (a collectiveCall) {
	onNeighbors[T](&a, t, coll.OpNeighborAlltoall)
	sources, destinations := a.degrees()
	send, receive := equalBlocks(&a, "in", in, destinations), equalBlocks(&a, "out", out, sources)
	if sources > 0 && destinations > 0 && send != receive {
		a.fail(ErrCount, "%d elements in for each neighbor, room for %d of each", send, receive)
	}
	a.call.Send, a.call.Recv = coll.Even(send*a.call.ElemSize), coll.Even(receive*a.call.ElemSize)
	neighborBuffers(&a, in, out)
	return a
}

// NeighborAlltoallv is NeighborAlltoall with blocks of different lengths. The block for neighbor i has
// scounts[i] elements and begins at in[sdispls[i]]; the block from neighbor i has rcounts[i] elements and
// begins at out[rdispls[i]]. If the displacements are nil, the blocks follow one another. weft uses counts
// and displacements only during the call.
func NeighborAlltoallv[T any](t Topology, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) error {
	return run(neighborAlltoallv(t, in, scounts, sdispls, out, rcounts, rdispls))
}

// IneighborAlltoallv begins a NeighborAlltoallv. Until the request is complete, out must not be accessed and
// in must not be changed.
func IneighborAlltoallv[T any](t Topology, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) (Request, error) {
	return startCall(neighborAlltoallv(t, in, scounts, sdispls, out, rcounts, rdispls))
}

// NeighborAlltoallvInit sets up a NeighborAlltoallv that can be started repeatedly.
func NeighborAlltoallvInit[T any](t Topology, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) (*Persistent, error) {
	return setUp(neighborAlltoallv(t, in, scounts, sdispls, out, rcounts, rdispls))
}

func neighborAlltoallv[T any](t Topology, in []T, scounts, sdispls []int, out []T, rcounts,
	rdispls []int) (a collectiveCall) {
	onNeighbors[T](&a, t, coll.OpNeighborAlltoallv)
	sources, destinations := a.degrees()
	a.call.Send = a.layout(destinations, "in", scounts, sdispls, len(in))
	a.call.Recv = a.layout(sources, "out", rcounts, rdispls, len(out))
	neighborBuffers(&a, in, out)
	return a
}

// onNeighbors starts the description of a call on the neighbors of a topology.
func onNeighbors[T any](a *collectiveCall, t Topology, o coll.Operation) {
	var c *Comm
	switch t := t.(type) {
	case *Cart:
		if t != nil { // nil at a rank outside the grid
			c = t.comm
		}
	case *Graph:
		if t != nil {
			c = t.comm
		}
	}
	begin[T](a, c, o)
	if a.err == nil {
		a.call.Neighbors = t.neighbors()
	}
}

// degrees returns the numbers of neighbors to receive from and to send to.
func (a *collectiveCall) degrees() (sources, destinations int) {
	if a.err != nil {
		return 0, 0
	}
	return len(a.call.Neighbors.Sources), len(a.call.Neighbors.Destinations)
}

// equalBlocks returns the number of elements of each of n equal blocks.
func equalBlocks[T any](a *collectiveCall, what string, buf []T, n int) int {
	if len(buf)%max(n, 1) != 0 || n == 0 && len(buf) > 0 && what == "out" {
		a.fail(ErrCount, "the %d elements of %s are no multiple of %d neighbors", len(buf), what, n)
	}
	return len(buf) / max(n, 1)
}

// neighborBuffers sets the buffers of a call on neighbors, for which MPI has no InPlace.
func neighborBuffers[T any](a *collectiveCall, in, out []T) {
	noInPlace(a, "in", in)
	noInPlace(a, "out", out)
	buffers(a, in, out)
	a.separate()
}

// Topology is a communicator whose ranks have neighbors: a *Cart or a *Graph. The neighbor collectives take
// one (MPI 4.1, 8.6), and all of its ranks call them.
//
// Blocks in their buffers follow the order of the neighbors. For a Graph, that is the order in which the
// program listed them. For a Cart, it is dimension by dimension, the lower neighbor first, with two blocks
// per dimension whether or not the neighbors exist. The block of a neighbor that does not exist, beyond the
// end of a dimension that is not periodic, is neither read nor written.
type Topology interface {
	// Comm returns the communicator of the topology's ranks.
	Comm() *Comm

	// neighbors are this rank's, in the order of their blocks in the buffers.
	neighbors() *coll.Neighbors
}
