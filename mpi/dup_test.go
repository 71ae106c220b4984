package mpi_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi"
)

func TestDup(t *testing.T) { together(t, 3, dup) }

// Messages and collectives of a communicator and of its duplicate do not mix.
var dup = body("dup", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	other, err := world.Dup()
	if err != nil {
		return err
	}
	if err := firstError(want("rank", other.Rank(), me), want("size", other.Size(), size)); err != nil {
		return err
	}
	// The same source and tag on both, and wildcards: the first to come is on the duplicate.
	next, previous := (me+1)%size, (me+size-1)%size
	for _, n := range []int{1, 10_000} {
		a, b := make([]int, n), make([]int, n)
		a[0], b[0] = me, 100+me
		onDup, err := mpi.Isend(other, b, next, 1)
		if err != nil {
			return err
		}
		onWorld, err := mpi.Isend(world, a, next, 1)
		if err != nil {
			return err
		}
		got := make([]int, n)
		if _, err := mpi.Probe(other, mpi.AnySource, mpi.AnyTag); err != nil {
			return err
		}
		if _, err := mpi.Recv(world, got, mpi.AnySource, mpi.AnyTag); err != nil {
			return err
		}
		if err := want("on the world", got[0], previous); err != nil {
			return err
		}
		if _, err := mpi.Recv(other, got, mpi.AnySource, mpi.AnyTag); err != nil {
			return err
		}
		if err := firstError(want("on the duplicate", got[0], 100+previous),
			mpi.Waitall([]mpi.Request{onDup, onWorld})); err != nil {
			return err
		}
	}
	// Collectives on both at the same time, with messages of their own kind between them.
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for k, c := range []*mpi.Comm{world, other} {
		wg.Go(func() {
			for i := range 100 {
				sum := make([]int, 1)
				if errs[k] = mpi.Allreduce(c, []int{i*(k+1) + me}, sum, mpi.Sum[int]()); errs[k] != nil {
					return
				}
				if errs[k] = want("sum", sum[0], size*i*(k+1)+size*(size-1)/2); errs[k] != nil {
					return
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 100 {
			got := make([]int, 1)
			_, err := mpi.Sendrecv(other, []int{i}, next, 0, got, mpi.AnySource, mpi.AnyTag)
			if errs[2] = firstError(err, want("message", got[0], i)); errs[2] != nil {
				return
			}
		}
	})
	wg.Wait()
	if err := firstError(errs...); err != nil {
		return err
	}

	// A request outlives its communicator; nothing else does.
	got := make([]int, 1)
	r, err := mpi.Irecv(other, got, previous, 9)
	if err != nil {
		return err
	}
	if err := mpi.Send(other, []int{me}, next, 9); err != nil {
		return err
	}
	handle := other.WithContext(context.Background())
	if err := other.Free(); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	_, irecv := mpi.Irecv(handle, got, previous, 9)
	_, again := other.Dup()
	return firstError(want("the last message", got[0], previous),
		wantMisuse("Send", mpi.Send(other, got, next, 9), mpi.ErrComm),
		wantMisuse("Irecv", irecv, mpi.ErrComm),
		wantMisuse("Barrier", mpi.Barrier(other), mpi.ErrComm), wantMisuse("Dup", again, mpi.ErrComm),
		wantMisuse("Free", other.Free(), mpi.ErrComm), mpi.Barrier(world))
})

func TestManyCommunicators(t *testing.T) { together(t, 2, manyCommunicators) }

// Communicators are made until there is no number for another: a clear error, at every rank; and what is
// freed can be used again, save the number of one that still has a message under way.
var manyCommunicators = body("many communicators", func(_ context.Context, world *mpi.Comm) error {
	mpi.LimitContextIDs(world, 10)
	other := 1 - world.Rank()
	var all []*mpi.Comm
	for {
		c, err := world.Dup()
		if err != nil {
			if err := wantMisuse("Dup", err, err); err != nil {
				return err
			}
			break
		}
		if all = append(all, c); len(all) > contextid.MaxEndpoints<<10 {
			return fmt.Errorf("%d communicators, and no end", len(all))
		}
	}
	if len(all) < 1000 {
		return fmt.Errorf("%d communicators, and no more", len(all))
	}
	busy := all[7]
	r, err := mpi.Irecv(busy, make([]int, 1), other, 0)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := c.Free(); err != nil {
			return err
		}
	}
	for i := 1; i < len(all); i++ { // all but the busy one
		c, err := world.Dup()
		if err != nil {
			return fmt.Errorf("after Free, %d: %w", i, err)
		}
		all[i] = c
	}
	if c, err := world.Dup(); err == nil {
		return fmt.Errorf("%v took a number with a receive under way", c)
	}
	if err := r.Cancel(); err != nil {
		return err
	}
	if _, err := r.Wait(); err != nil {
		return err
	}
	c, err := world.Dup()
	if err != nil {
		return fmt.Errorf("after the last receive: %w", err)
	}
	for _, c := range []*mpi.Comm{c, all[1], all[len(all)-1]} {
		if err := mpi.Barrier(c); err != nil {
			return err
		}
	}
	return nil
})

func TestDupsAtTheSameTime(t *testing.T) { together(t, 4, dupsAtTheSameTime) }

// Goroutines duplicate several communicators at the same time, begun in a different order at each rank: all
// ranks agree, and no two get the same space.
var dupsAtTheSameTime = body("dups at the same time", func(_ context.Context, world *mpi.Comm) error {
	const parents, rounds = 4, 6
	me := world.Rank()
	family := []*mpi.Comm{world}
	for len(family) < parents {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		family = append(family, c)
	}
	made := make([][]*mpi.Comm, parents)
	errs := make([]error, parents)
	var wg sync.WaitGroup
	for k := range parents {
		k = (k*(1+2*(me%2)) + me) % parents
		wg.Go(func() {
			for range rounds {
				c, err := family[k].Dup()
				if err != nil {
					errs[k] = err
					return
				}
				made[k] = append(made[k], c)
			}
		})
	}
	wg.Wait()
	if err := firstError(errs...); err != nil {
		return err
	}
	// A message on each, none of which is received before all are sent.
	next, previous := (me+1)%world.Size(), (me+world.Size()-1)%world.Size()
	var open []mpi.Request
	for k := range made {
		for i, c := range made[k] {
			r, err := mpi.Isend(c, []int{k*100 + i}, next, 0)
			if err != nil {
				return err
			}
			open = append(open, r)
		}
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	for k := range made {
		for i, c := range made[k] {
			got := make([]int, 1)
			_, err := mpi.Recv(c, got, previous, mpi.AnyTag)
			if err := firstError(err, want("message", got[0], k*100+i)); err != nil {
				return fmt.Errorf("on %v: %w", c, err)
			}
		}
	}
	return mpi.Waitall(open)
})

func TestDupsInAnotherOrder(t *testing.T) { together(t, 2, dupsInAnotherOrder) }

// One rank duplicates two communicators at the same time, the other one after the other: it does not matter
// that the one which the first has begun with, and which comes first among them, is the last there.
var dupsInAnotherOrder = body("dups in another order", func(_ context.Context, world *mpi.Comm) error {
	second, err := world.Dup()
	if err != nil {
		return err
	}
	var a, b *mpi.Comm
	if world.Rank() == 0 {
		both := make(chan error, 1)
		err = asleep(world, func() {
			go func() {
				var err error
				b, err = second.Dup()
				both <- err
			}()
		}, func() (err error) {
			a, err = world.Dup()
			return err
		})
		if err := firstError(err, <-both); err != nil {
			return err
		}
	} else {
		if b, err = second.Dup(); err != nil {
			return err
		}
		if a, err = world.Dup(); err != nil {
			return err
		}
	}
	return firstError(mpi.Barrier(a), mpi.Barrier(b), a.Free(), b.Free(), second.Free())
})

func TestSplit(t *testing.T) { together(t, 5, split) }

// Ranks by color, ordered by key; statuses and wildcards are of the new communicator.
var split = body("split", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	color := me % 2
	if me == 4 {
		color = mpi.Undefined
	}
	c, err := world.Split(color, -me) // the highest first
	if err != nil {
		return err
	}
	if me == 4 {
		return firstError(want("communicator of Undefined", c, nil), mpi.Barrier(world), mpi.Barrier(world))
	}
	// 0: 2, 0; 1: 3, 1.
	rank := 1 - me/2
	other := 1 - rank
	if err := firstError(want("size", c.Size(), 2), want("rank", c.Rank(), rank)); err != nil {
		return err
	}
	got := make([]int, 1)
	st, err := mpi.Sendrecv(c, []int{me}, other, 0, got, mpi.AnySource, mpi.AnyTag)
	if err := firstError(err, want("source", st.Source, other),
		want("world rank", got[0], 2*(1-me/2)+me%2)); err != nil {
		return err
	}
	s, err := mpi.Issend(c, []int{me}, other, 5)
	if err != nil {
		return err
	}
	m, st, err := mpi.Mprobe(c, mpi.AnySource, 5)
	if err := firstError(err, want("source of the probe", st.Source, other)); err != nil {
		return err
	}
	st, err = mpi.Mrecv(&m, got)
	if err := firstError(err, want("source of the message", st.Source, other)); err != nil {
		return err
	}
	if _, err := s.Wait(); err != nil {
		return err
	}
	if err := mpi.Bcast(c, got, 0); err != nil { // each root has what the other sent
		return err
	}
	if err := want("from the root", got[0], me%2); err != nil {
		return err
	}
	_, beyond := mpi.Irecv(c, got, 2, 0)
	if err := wantError("rank 2 of 2", beyond, mpi.ErrRank); err != nil {
		return err
	}
	// A communicator of a communicator, while the others are in theirs.
	alone, err := c.Split(rank, 0)
	if err != nil {
		return err
	}
	sum := make([]int, 1)
	err = mpi.Allreduce(alone, []int{me}, sum, mpi.Sum[int]())
	if err := firstError(err, want("size", alone.Size(), 1), want("sum", sum[0], me), alone.Free(),
		mpi.Barrier(world)); err != nil {
		return err
	}
	again, err := c.Dup()
	if err != nil {
		return err
	}
	st, err = mpi.Sendrecv(again, []int{me}, other, 0, got, mpi.AnySource, 0)
	return firstError(err, want("source", st.Source, other), again.Free(), c.Free(), mpi.Barrier(world))
})
