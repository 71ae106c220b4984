// Farm counts primes: rank 0 deals out short tasks, and the goroutines of the other ranks do them.
//
//	weft run -n 4 --endpoints 4 ./examples/farm
//
// Goroutine k of each rank communicates with goroutine k of rank 0, on a communicator of their own. So no
// goroutine takes a message that is for another one, and with several endpoints they do not wait for each
// other's calls either.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/mpi"
)

const (
	goroutines = 4    // of each rank
	tasks      = 2000 // a task is the numbers of one length from its own number on
	length     = 50
	done       = -1 // in place of a task: there are no more
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("farm: ")
	if err := mpi.Run(context.Background(), farm); err != nil {
		log.Fatal(err)
	}
}

func farm(_ context.Context, world *mpi.Comm) error {
	comms := make([]*mpi.Comm, goroutines)
	for k := range comms {
		var err error
		if comms[k], err = world.Dup(); err != nil { // on the next endpoint, if there are several
			return err
		}
	}
	var next, found atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, goroutines)
	for k, c := range comms {
		all.Go(func() {
			if c.Rank() == 0 {
				errs[k] = deal(c, &next, &found)
			} else {
				errs[k] = work(c)
			}
		})
	}
	all.Wait()
	if world.Rank() == 0 {
		for task := next.Add(1) - 1; task < tasks; task = next.Add(1) - 1 { // nobody else is there
			found.Add(primes(task))
		}
		by := "1 goroutine"
		if workers := world.Size() - 1; workers > 0 {
			by = fmt.Sprintf("%d goroutines", workers*goroutines)
		}
		fmt.Printf("%d primes below %d, counted by %s\n", found.Load(), tasks*length, by)
	}
	for _, c := range comms {
		errs = append(errs, c.Free())
	}
	return errors.Join(errs...)
}

// deal gives each other rank of the communicator a task whenever it sends what it found, until all are done.
func deal(c *mpi.Comm, next, found *atomic.Int64) error {
	for working := c.Size() - 1; working > 0; {
		count := make([]int64, 1)
		st, err := mpi.Recv(c, count, mpi.AnySource, 0)
		if err != nil {
			return err
		}
		found.Add(count[0])
		task := next.Add(1) - 1
		if task >= tasks {
			task = done
			working--
		}
		if err := mpi.Send(c, []int64{task}, st.Source, 0); err != nil {
			return err
		}
	}
	return nil
}

// work does tasks until there are no more. The first message says only that the goroutine is there.
func work(c *mpi.Comm) error {
	message := make([]int64, 1)
	for {
		if err := mpi.Send(c, message, 0, 0); err != nil {
			return err
		}
		if _, err := mpi.Recv(c, message, 0, 0); err != nil || message[0] == done {
			return err
		}
		message[0] = primes(message[0])
	}
}

// primes returns how many of a task's numbers are prime.
func primes(task int64) (count int64) {
	for n := task * length; n < (task+1)*length; n++ {
		prime := n > 1
		for d := int64(2); prime && d*d <= n; d++ {
			prime = n%d != 0
		}
		if prime {
			count++
		}
	}
	return count
}
