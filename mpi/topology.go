package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

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
