// Package mpi provides message passing between the ranks of a parallel program, in pure Go, with the names
// and semantics of the MPI standard. A buffer is a slice, a failure is an error value, and the data path
// neither allocates nor uses reflection.
//
//	func main() {
//		err := mpi.Run(context.Background(), func(ctx context.Context, world *mpi.Comm) error {
//			sum := make([]float64, 1)
//			return mpi.Allreduce(world, []float64{float64(world.Rank())}, sum, mpi.Sum[float64]())
//		})
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
//
// Start it with `weft run -n 4 ./program`. A program started without a launcher is a world of one rank.
//
// Labels such as E13 in comments are requirement ids, see docs/internals/conformance.md.
//
// Any goroutine may make any call. Messages between two ranks on one communicator and tag never overtake one
// another. A call that waits drives the rank's communication while it waits.
//
// # Ownership of buffers
//
// A blocking call has finished with its buffer when it returns, with or without an error. A buffer given to
// Isend, Irecv or another call that returns a Request belongs to weft until the request is complete. The
// program may read a send buffer in the meantime.
//
// Buffers are ordinary slices, or parts of slices that Alloc returned: registered memory outside the Go heap,
// which lasts until Free.
//
// An operation can be cancelled, by Request.Cancel or by the context of Comm.WithContext. Its buffer belongs
// to the program again when the wait for its request returns.
package mpi
