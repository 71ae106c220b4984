package mpi

import (
	"errors"
	"math/bits"
	"slices"
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// contexts are the numbers that keep the messages of communicators apart, as this rank knows them. The ranks of a new communicator agree
// on the lowest number that is free at all of them, by a bitwise and over the communicator that it is made of.
//
// Two communicators that overlap may be looking for a number at the same time, in goroutines that run in different orders at different
// ranks. So that they do not both take the same one, a rank offers its free numbers to one of them at a time; the others get zeros,
// find nothing and try again. The one with the lowest context comes first at every rank, so one of them is always getting on; for that it
// must not wait for a rank that has not come to it yet, perhaps because that rank is busy with another: so they begin with a barrier.
type contexts struct {
	mu      sync.Mutex
	free    [contextWords]uint64 // a bit for each number
	freed   []uint32             // contexts of freed communicators, which may have messages under way
	looking []uint32             // contexts of the communicators that look for a number
	offered bool                 // to one of them
}

// contextWords times 64 communicators can be there at a time.
const contextWords = 64

// A number has two contexts: for the messages and, above it, for the collectives.
func contextOf(number int) uint32 { return uint32(2 * number) }

func (x *contexts) init() {
	for i := range x.free {
		x.free[i] = ^uint64(0)
	}
	x.take(0) // the world's
}

func (x *contexts) take(number int) { x.free[number/64] &^= 1 << (number % 64) }

func (x *contexts) giveBack(context uint32) {
	x.free[context/128] |= 1 << (context / 2 % 64)
}

// bid fills in what this rank has to offer to a communicator, and tells whether that is its free numbers.
func (x *contexts) bid(e *engine.Engine, context uint32, words []uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(words)
	if x.offered || slices.Min(x.looking) != context {
		return false
	}
	x.freed = slices.DeleteFunc(x.freed, func(f uint32) bool {
		if e.Busy(f) || e.Busy(f+1) {
			return false
		}
		e.Release(f)
		e.Release(f + 1)
		x.giveBack(f)
		return true
	})
	x.offered = true
	copy(words, x.free[:])
	return true
}

// settle ends a bid that was an offer: number was agreed on, or none where it is negative.
func (x *contexts) settle(number int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offered = false
	if number >= 0 {
		x.take(number)
	}
}

func (x *contexts) look(context uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.looking = append(x.looking, context)
}

func (x *contexts) found(context uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.Index(x.looking, context)
	x.looking = slices.Delete(x.looking, i, i+1)
}

func (x *contexts) retire(context uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.freed = append(x.freed, context)
}

// newContext agrees with the other ranks of the communicator on the context of a new one.
func (c *Comm) newContext() (uint32, error) {
	c.agree.Lock()
	defer c.agree.Unlock()
	if err := Barrier(c); err != nil {
		return 0, err
	}
	x := &c.job.contexts
	x.look(c.context)
	defer x.found(c.context)
	words := make([]uint64, contextWords+1)
	numbers, all := words[:contextWords], &words[contextWords]
	for {
		offered := x.bid(c.e, c.context, numbers)
		*all = 0
		if offered {
			*all = 1
		}
		err := Allreduce(c, InPlace[uint64](), words, BAnd[uint64]())
		number := -1
		if i := slices.IndexFunc(numbers, func(w uint64) bool { return w != 0 }); err == nil && i >= 0 {
			number = 64*i + bits.TrailingZeros64(numbers[i])
		}
		if offered {
			x.settle(number)
		}
		switch {
		case err != nil:
			return 0, err
		case number >= 0:
			return contextOf(number), nil
		case *all == 1:
			return 0, errors.New("no number is free at all ranks for another communicator: free those that are not used any more")
		}
	}
}
