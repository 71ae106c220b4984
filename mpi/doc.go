// Package mpi provides message passing between the ranks of a parallel program, in pure Go, with the names
// and semantics of the MPI standard. A buffer is a slice, a failure is an error value, and the data path
// neither allocates nor uses reflection.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/weft-mpi/weft/mpi"
//	)
//
//	func main() {
//		err := mpi.Run(context.Background(), func(ctx context.Context, world *mpi.Comm) error {
//			sum, err := mpi.AllreduceValue(world, world.Rank(), mpi.Sum[int]())
//			fmt.Println("rank", world.Rank(), "of", world.Size(), "knows the sum:", sum)
//			return err
//		})
//		if err != nil {
//			log.Fatal(err)
//		}
//	}
//
// "weft run -n 4 ." starts four processes of this program, the ranks. All of them run the same function; what
// a rank does follows from its number, [Comm.Rank]. A program started without a launcher is a world of one
// rank. If the function returns an error, the whole job ends.
//
// Communicators are groups of ranks whose messages are apart from those of other communicators. [Run] passes
// the world, which has all ranks. [Comm.Split], [Comm.Dup], [Comm.Create] and [Comm.Cart] make others.
//
// # Messages
//
// [Send] and [Recv] transfer a slice of any fixed-size type without pointers: numbers, arrays, structs of
// them. A message has a destination and a tag; a receive names its source and tag, or [AnySource] and
// [AnyTag]. Messages between two ranks on one communicator and tag never overtake one another. The returned
// [Status] says who sent how many elements. A buffer may be longer than the message; for messages of unknown
// length, use [Probe] or [RecvSlice].
//
// A Send may wait until the message is received. Two ranks that send to each other first and receive then can
// wait forever: use [Sendrecv], or [Isend] and [Irecv]. These return a [Request] at once, to wait for later.
// [SendInit] and [RecvInit] set up messages that are sent again and again. [ProcNull] stands for no rank:
// messages to and from it are not there.
//
// [SendValue], [RecvValue] and the like take any value that encoding/gob can encode. They are for set-up and
// results, not for the inner loop.
//
// # Collectives
//
// All ranks of a communicator call a collective together, in the same order: [Barrier], [Bcast], [Reduce],
// [Allreduce], [Gather], [Scatter], [Allgather], [Alltoall], [Scan] and others. Lengths are equal at all
// ranks, except in the forms whose names end in v, as [Gatherv]. [InPlace] stands for an input that is in the
// output's slice. Operators are [Sum], [Prod], [Max], [Min], [MaxLoc] and others, and those of [NewOp].
//
// Each collective has a non-blocking form, as [Iallreduce], and a persistent one, as [AllreduceInit]. Where
// each rank sends to a few others, [Exchange] needs no rank to know who sends to it, and the collectives on
// neighbors, as [NeighborAlltoall], work on the grid of [Comm.Cart] or the graph of [GraphOf].
//
// # Views
//
// A [View] selects elements of a slice that do not follow one another: [Strided] columns, [Sub] blocks of
// arrays, [Indexed] lists. [SendView], [RecvView], [BcastView], [AlltoallView], [Win.PutView] and
// [Win.GetView] move them; the program does not copy them to a buffer first.
//
// # Windows
//
// A [Win] is memory of each rank that the others read and write: [Win.Put], [Win.Get], [Win.Accumulate],
// [Win.FetchAndOp], [Win.CompareAndSwap]. [WinAllocate] makes it; [WinAllocateShared] makes one of the ranks
// of a host, which access one another's memory directly. Operations take place in an epoch and are complete
// at its end. Either all ranks call [Win.Fence] before and after, or a rank opens an epoch by itself with
// [Win.Lock] or [Win.LockAll]; there [Win.Flush] completes them in between.
//
// # Errors
//
// Every error of a call is an [*Error], which names the call, the communicator, the ranks and the tag, and
// wraps one of the kinds of failure, such as [ErrTruncate], for [errors.Is]. Return it from the body of Run:
// the job then ends, and the launcher prints which rank failed first. Under "weft run --survive" a job goes
// on when ranks fail: calls that need them return [ErrProcFailed], and [Comm.Revoke], [Comm.Agree] and
// [Comm.Shrink] let the others go on. WEFT_CHECK=1 in the environment finds calls that do not match.
//
// # Contexts
//
// [Comm.WithContext] returns a handle of the same communicator whose calls end with a context. Derive such
// contexts from the one that Run passes to its body. [Request.Cancel] cancels a single operation.
//
// # Goroutines and buffers
//
// Any goroutine may make any call, at the same time as others. A call that waits drives the communication of
// the whole rank.
//
// A blocking call has finished with its buffer when it returns, with or without an error. A buffer given to
// Isend, Irecv or another call that returns a Request belongs to weft until the request is complete, also
// where the operation is cancelled. The program may read a send buffer in the meantime.
//
// Buffers are ordinary slices, or parts of slices that [Alloc] returned: registered memory outside the Go
// heap, which moves with fewer copies and lasts until [Free].
//
// # Going on from here
//
// Package mpi/file reads and writes files together, mpi/pool deals out tasks, mpi/checkpoint saves the state
// of a job, and mpi/mpitest tests parallel functions under go test. docs/tutorial.md goes from an empty
// folder to two hosts, and docs/reference/from-mpi.md names what stands for each procedure of MPI.
package mpi
