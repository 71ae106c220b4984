// Package mpi is message passing between the ranks of a parallel program, in pure Go, with the names and the
// meaning of the MPI standard. A buffer is a slice, a failure is an error value, and nothing on the data path
// allocates or reflects.
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
// Every call may be made from any goroutine. Messages between two ranks on one communicator and tag never
// overtake one another. A call that waits drives the rank's communication while it waits.
//
// # Ownership of buffers
//
// A blocking call has finished with its buffer when it returns, with or without an error. A buffer given to
// Isend, Irecv or another call that returns a Request belongs to weft until the request is complete; a send
// buffer may be read meanwhile.
//
// Buffers are ordinary slices, or parts of what Alloc gives: registered memory outside the Go heap, which
// lasts until Free.
//
// What is given up, by Request.Cancel or with the context of Comm.WithContext, has given its buffer back when
// its wait returns.
package mpi
