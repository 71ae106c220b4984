package mpi_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// atSizes runs a body at several numbers of ranks, over every fabric.
func atSizes(t *testing.T, name string, env ...string) {
	fabricsInTurn(t, func(t *testing.T, fabric string) {
		sizes := []int{1, 2, 5}
		switch {
		case testlength.Whole():
			sizes = []int{1, 2, 4, 7}
		case fabric == "WEFT_FABRIC=tcp":
			sizes = []int{4}
		}
		for _, n := range sizes {
			t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, name, append(env, fabric)...) })
		}
	})
}

func TestCreate(t *testing.T) { atSizes(t, create) }

// Communicators of groups have the ranks and the order of the groups.
var create = body("create", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	everyone := world.Group()
	var even []int
	for r := size - 1; r >= 0; r-- { // the last even rank first
		if r%2 == 0 {
			even = append(even, r)
		}
	}
	evens, err := everyone.Incl(even...)
	if err != nil {
		return err
	}
	odds := everyone.Difference(evens)
	mine := evens
	if me%2 == 1 {
		mine = odds
	}
	c, err := world.Create(evens)
	if err != nil {
		return err
	}
	if err := want("has a communicator", c != nil, me%2 == 0); err != nil {
		return err
	}
	if c != nil {
		err := firstError(want("rank", c.Rank(), slices.Index(even, me)), want("size", c.Size(), len(even)),
			want("compare", c.Group().Compare(evens), mpi.Identical), checkedSum(c, 5), c.Free())
		if err != nil {
			return err
		}
	}
	both, err := world.Create(mine) // two groups at once
	if err := firstError(err, want("size", both.Size(), mine.Size()), checkedSum(both, 7)); err != nil {
		return err
	}
	again, err := world.Dup()
	if err != nil {
		return err
	}
	again.SetName("again")
	err = firstError(want("name", again.String(), "again"), want("compare", world.Compare(again),
		mpi.Congruent),
		want("compare", world.Compare(world.WithContext(context.Background())), mpi.Identical),
		want("compare", both.Compare(nil), mpi.Unequal))
	if err != nil {
		return err
	}
	if size > 1 {
		if err := want("compare", world.Compare(both), mpi.Unequal); err != nil {
			return err
		}
	}
	// One process is not in the group: others are.
	if size > 2 {
		_, err := both.Create(everyone)
		if err := wantMisuse("Create", err, mpi.ErrRank); err != nil {
			return err
		}
	}
	shared, err := world.SplitShared()
	return firstError(err, want("size", shared.Size(), size), checkedSum(shared, 3), shared.Free(),
		both.Free(), again.Free())
})

func TestSplitShared_OfSeveralHosts(t *testing.T) {
	together(t, 5, splitShared)
}

// Ranks of one host come together, in their order.
var splitShared = body("split shared", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	mpi.SetHost(world, uint64(100-me%2))
	c, err := world.SplitShared()
	return firstError(err, want("size", c.Size(), 3-me%2), want("rank", c.Rank(), me/2), checkedSum(c, 9),
		c.Free())
})

func TestCreateGroup(t *testing.T) { atSizes(t, createGroup) }

// Only the group's processes make the communicator, several goroutines at once for overlapping groups, in
// another order at each rank, while others duplicate the world. No two communicators mix their messages.
var createGroup = body("create group", func(_ context.Context, world *mpi.Comm) error {
	const rounds = 5
	me, size := world.Rank(), world.Size()
	kinds := 4
	var wg sync.WaitGroup
	errs := make([]error, kinds+1)
	made := make([][]*mpi.Comm, kinds+1)
	make1 := func(kind int) error {
		var members []int
		for r := range size {
			if kind == 0 || r%kind == 0 || r == size-1 {
				members = append(members, r)
			}
		}
		if kind%2 == 1 {
			slices.Reverse(members)
		}
		if !slices.Contains(members, me) {
			return nil
		}
		g, err := world.Group().Incl(members...)
		if err != nil {
			return err
		}
		for range rounds {
			c, err := world.CreateGroup(g, 10+kind)
			if err != nil {
				return err
			}
			made[kind] = append(made[kind], c)
			if err := firstError(want("rank", c.Rank(), slices.Index(members, me)),
				want("size", c.Size(), len(members))); err != nil {
				return err
			}
		}
		return nil
	}
	for k := range kinds {
		k = (k*3 + me) % kinds
		wg.Go(func() { errs[k] = make1(k) })
	}
	wg.Go(func() {
		for range rounds {
			c, err := world.Dup()
			if err != nil {
				errs[kinds] = err
				return
			}
			made[kinds] = append(made[kinds], c)
		}
	})
	wg.Wait()
	if err := firstError(errs...); err != nil {
		return err
	}
	for k := range made {
		wg.Go(func() {
			for i, c := range made[k] {
				if errs[k] = firstError(checkedSum(c, 100*k+i), c.Free()); errs[k] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := firstError(errs...); err != nil {
		return err
	}
	if size > 1 {
		others, err := world.Group().Excl(me)
		if err != nil {
			return err
		}
		_, err = world.CreateGroup(others, 0)
		if err := wantMisuse("CreateGroup", err, mpi.ErrArg); err != nil {
			return err
		}
	}
	_, err := world.CreateGroup(world.Group(), -1)
	return wantMisuse("CreateGroup", err, mpi.ErrTag)
})
