// Hashtable counts numbers in a hash table that is spread over all ranks.
//
//	weft run -n 4 ./examples/hashtable
//
// Every rank inserts, into any rank's part, without that rank's help: CompareAndSwap takes a free slot for a
// key, and of several ranks that want it one gets it. Accumulate then adds to the key's count.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/weft-mpi/weft/mpi"
)

const (
	numbers = 2000 // that each rank counts
	kinds   = 300  // of numbers that there are
	slots   = 512  // of each rank's part
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("hashtable: ")
	if err := mpi.Run(context.Background(), count); err != nil {
		log.Fatal(err)
	}
}

// table is spread over the ranks: a slot has a key, plus one so that 0 is a free slot, and its count.
type table struct {
	keys, counts *mpi.Win[int64]
	ranks        int
}

func (t *table) insert(key int64) error {
	hash := uint64(key+1) * 0x9e3779b97f4a7c15
	rank, slot := int(hash>>32)%t.ranks, int(hash>>48)%slots
	for range slots {
		was, err := t.keys.CompareAndSwap(0, key+1, rank, slot)
		if err != nil {
			return err
		}
		if was == 0 || was == key+1 {
			return t.counts.Accumulate([]int64{1}, rank, slot, mpi.Sum[int64]())
		}
		slot = (slot + 1) % slots // another key has it
	}
	return fmt.Errorf("the part of rank %d is full", rank)
}

func count(_ context.Context, world *mpi.Comm) error {
	keys, err := mpi.WinAllocate[int64](world, slots)
	if err != nil {
		return err
	}
	counts, err := mpi.WinAllocate[int64](world, slots)
	if err != nil {
		return err
	}
	t := &table{keys, counts, world.Size()}
	for _, err := range []error{keys.LockAll(), counts.LockAll()} {
		if err != nil {
			return err
		}
	}
	random := rand.New(rand.NewPCG(1, uint64(world.Rank())))
	for range numbers {
		if err := t.insert(random.Int64N(kinds)); err != nil {
			return err
		}
	}
	// UnlockAll completes what this rank has begun; after the Barrier that holds for all ranks.
	for _, err := range []error{keys.UnlockAll(), counts.UnlockAll(), mpi.Barrier(world)} {
		if err != nil {
			return err
		}
	}
	found := make([]int64, 2) // kinds and numbers
	for slot, key := range keys.Local() {
		if key != 0 {
			found[0]++
		}
		found[1] += counts.Local()[slot]
	}
	if err := mpi.Allreduce(world, mpi.InPlace[int64](), found, mpi.Sum[int64]()); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Printf("%d numbers of %d kinds from %d ranks\n", found[1], found[0], world.Size())
	}
	if err := keys.Free(); err != nil {
		return err
	}
	return counts.Free()
}
