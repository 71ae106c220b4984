// Package mpitest runs parallel programs under go test. The ranks are goroutines of the test, so the race
// detector, coverage and a debugger see all of them at once.
//
//	func TestSum(t *testing.T) {
//		mpitest.Run(t, 4, func(ctx context.Context, world *mpi.Comm) error {
//			sum := make([]int, 1)
//			if err := mpi.Allreduce(world, []int{world.Rank()}, sum, mpi.Sum[int]()); err != nil {
//				return err
//			}
//			if sum[0] != 6 {
//				return fmt.Errorf("the sum is %d", sum[0])
//			}
//			return nil
//		})
//	}
//
// Each rank is in checking mode (WEFT_CHECK), and the messages go through a simulated network. One rank runs
// at a time, until its next call. What MPI leaves open is drawn from a seed, which so repeats a run; see
// [Seed]. [Explore] runs all matchings of receives from any source, and [KillEach] kills a rank at each of
// its calls.
//
// # The ranks' time
//
// The ranks run in a bubble of package [testing/synctest]: their clock stands still while any of them can go
// on, and jumps to the next timer when none can. A time.Sleep takes no time, and a call that waits for its
// context's deadline fails as soon as nothing else can happen. So a deadlock is found at once. The rules of
// package synctest apply: the ranks must not use channels, timers and wait groups that were made outside Run,
// nor pass their own to goroutines outside; and a goroutine that blocks in a system call, or for a
// sync.Mutex, counts as able to go on.
//
// # What fails the test
//
// An error, a panic or FailNow of any rank fails the test, and ends the others: their calls return
// [mpi.ErrAborted], and their contexts end. The test also fails for a deadlock, which is reported with the
// call and the line of each rank, for every mistake that checking mode finds, and for anything left over when
// the bodies have returned: messages that were never received, requests that were never waited for,
// communicators and windows that were never freed, and goroutines.
//
// # Fabrics, processes and costs
//
// With the option [Fabric] the ranks communicate over shared memory or TCP, still in one process but in real
// time. [Processes] makes each rank a process. [Measure] simulates the time of messages and returns the cost
// of a body. [Try] returns an error instead of failing the test.
//
// # Differences from a process
//
// Ranks share the package variables of the program. Calls that act on the process's own rank do not act on a
// rank of Run: use [mpi.AllocOn] and [mpi.FreeOn] instead of mpi.Alloc and mpi.Free, and no mpi.Init, mpi.Run
// or mpi.Finalize in a body. The settings of the environment (WEFT_*) do not apply; see [Config].
package mpitest
