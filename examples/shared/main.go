// Shared has the ranks of each host compute a table together, once, in memory that all of them use.
//
//	weft run -n 4 ./examples/shared
//
// WinAllocateShared gives each rank a part, and Of the parts of the others as slices: loads and stores, with
// no message. Here it is a sieve: each rank marks the composite numbers of its part, and counts all primes.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/weft-mpi/weft/mpi"
)

const limit = 100_000 // numbers below it are looked at

func main() {
	log.SetFlags(0)
	log.SetPrefix("shared: ")
	if err := mpi.Run(context.Background(), sieve); err != nil {
		log.Fatal(err)
	}
}

func sieve(_ context.Context, world *mpi.Comm) error {
	host, err := world.SplitShared()
	if err != nil {
		return err
	}
	each := (limit + host.Size() - 1) / host.Size()
	win, err := mpi.WinAllocateShared[bool](host, each)
	if err != nil {
		return err
	}
	composite, first := win.Local(), host.Rank()*each
	for d := 2; d*d < first+each; d++ {
		for x := max(d*d, (first+d-1)/d*d); x < first+each; x += d {
			composite[x-first] = true
		}
	}
	// What ranks have stored before the Fence is seen by all after it.
	if err := win.Fence(); err != nil {
		return err
	}
	primes := 0
	for rank := range host.Size() {
		for i, composite := range win.Of(rank) {
			if x := rank*each + i; x >= 2 && x < limit && !composite {
				primes++
			}
		}
	}
	fmt.Printf("rank %d: %d primes below %d\n", world.Rank(), primes, limit)
	// Nobody's memory goes while another still looks at it: Free waits for all.
	if err := win.Free(); err != nil {
		return err
	}
	return host.Free()
}
