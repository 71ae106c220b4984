package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// Topology is a communicator whose ranks have neighbors: *Cart and *Graph. The neighbor collectives take one
// (MPI 4.1, 8.6), and all of its ranks call them.
//
// Blocks in their buffers follow the order of the neighbors. Those of a Graph are in the order in which they
// were given. Those of a Cart come dimension by dimension, the lower neighbor first: there are two for each
// dimension, whether they are there or not. The block of a neighbor that is not there, beyond the end of a
// dimension that is not periodic, is not touched.
type Topology interface {
	// Comm returns the communicator of the topology's ranks.
	Comm() *Comm

	// neighbors are this rank's, in the order of their blocks in the buffers.
	neighbors() *coll.Neighbors
}
