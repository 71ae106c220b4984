package mpi_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi"
)

func TestAttributes(t *testing.T) {
	r := launch(t, 2, attributes)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
	require.Contains(t, r.Out, "rank 0: the world's attribute 8 is gone")
	require.Contains(t, r.Out, "rank 1: the world's attribute 9 is gone")
}

// A communicator has what was set, each value goes once, and copies have what the key's function makes of it.
var attributes = worldBody("attributes", func(_ context.Context, world *mpi.Comm) error {
	var gone []string
	cached := mpi.NewKey(func(v *int) (*int, bool) {
		w := *v + 100
		return &w, *v < 200
	}, func(v *int) { gone = append(gone, fmt.Sprint("cached ", *v)) })
	own := mpi.NewKey(nil, func(v string) { gone = append(gone, v) })
	any := mpi.NewKey(func(err error) (error, bool) { return err, true }, nil)
	value := func(c *mpi.Comm) int {
		if v, ok := cached.Get(c); ok {
			return *v
		}
		return -1
	}
	parent, err := world.Dup()
	if err != nil {
		return err
	}
	one, two := 1, 2
	_, found := own.Get(parent)
	if err := firstError(want("not set", value(parent), -1), want("not set", found, false),
		want("Delete of nothing", own.Delete(parent), false),
		cached.Set(parent, &one), cached.Set(parent.WithContext(context.Background()), &two),
		own.Set(parent, "own"), any.Set(parent, nil)); err != nil {
		return err
	}
	if err := firstError(want("replaced", fmt.Sprint(gone), "[cached 1]"), want("set", value(parent), 2),
		want("the world's", value(world), -1)); err != nil {
		return err
	}
	dup, err := parent.Dup()
	if err != nil {
		return err
	}
	var idup *mpi.Comm
	if err := waited(dup.Idup(&idup)); err != nil {
		return err
	}
	third, err := idup.Dup() // 202 is not copied
	split, err2 := parent.Split(0, 0)
	_, ownCopied := own.Get(dup)
	nothing, anyCopied := any.Get(dup)
	if err := firstError(err, err2, want("of Dup", value(dup), 102), want("of Idup", value(idup), 202),
		want("refused", value(third), -1), want("of Split", value(split), -1),
		want("without a copy function", ownCopied, false), want("a nil value", anyCopied, true),
		want("a nil value", nothing, nil)); err != nil {
		return err
	}
	gone = nil
	if err := firstError(want("Delete", cached.Delete(dup), true), want("deleted", value(dup), -1),
		dup.Free(), idup.Free(), third.Free(), split.Free(), parent.Free()); err != nil {
		return err
	}
	_, found = own.Get(parent)
	if !slices.Equal(gone, []string{"cached 102", "cached 202", "own", "cached 2"}) || found {
		return fmt.Errorf("gone are %q", gone)
	}
	if err := firstError(wantMisuse("Key.Set", own.Set(parent, ""), mpi.ErrComm),
		wantMisuse("Key.Set", own.Set(nil, ""), mpi.ErrComm),
		wantMisuse("Key.Set", (*mpi.Key[int])(nil).Set(world, 1), mpi.ErrArg)); err != nil {
		return err
	}
	last := mpi.NewKey(nil, func(v int) {
		fmt.Printf("rank %d: the world's attribute %d is gone\n", world.Rank(), v)
	})
	return last.Set(world, 8+world.Rank())
})

func TestIdup(t *testing.T) {
	onFabricsAndChecked(t, func(t *testing.T, setting string) {
		for _, n := range []int{1, 4} {
			t.Run(fmt.Sprint(n), func(t *testing.T) { together(t, n, idup, setting) })
		}
	})
}

// Several Idups are under way at once beside other collectives, from several goroutines, and each gives a
// communicator of its own. The caller need not call anything meanwhile.
var idup = body("Idup", func(_ context.Context, world *mpi.Comm) error {
	const each = 5
	parents := []*mpi.Comm{world}
	for range 2 {
		c, err := world.Dup()
		if err != nil {
			return err
		}
		parents = append(parents, c)
	}
	made := make([][each]*mpi.Comm, len(parents))
	errs := make([]error, len(parents))
	var wg sync.WaitGroup
	for i, c := range parents {
		wg.Go(func() {
			rs := make([]mpi.Request, each)
			for k := range rs {
				if rs[k], errs[i] = c.Idup(&made[i][k]); errs[i] != nil {
					return
				}
			}
			sum := []int{0}
			errs[i] = firstError(mpi.Allreduce(c, []int{1}, sum, mpi.Sum[int]()), mpi.Waitall(rs),
				want("sum", sum[0], world.Size()))
		})
	}
	wg.Wait()
	if err := firstError(errs...); err != nil {
		return err
	}
	me, size := world.Rank(), world.Size()
	var rs []mpi.Request
	var all []*mpi.Comm
	for i := range made {
		all = append(all, made[i][:]...)
	}
	got := make([]int, len(all))
	for i, c := range all {
		if c.Size() != size || c.Rank() != me {
			return fmt.Errorf("rank %d of %d", c.Rank(), c.Size())
		}
		s, err := mpi.Isend(c, []int{1000*me + i}, (me+1)%size, 0)
		if err != nil {
			return err
		}
		rs = append(rs, s)
	}
	for i, c := range slices.Backward(all) {
		if _, err := mpi.Recv(c, got[i:i+1], (me+size-1)%size, 0); err != nil {
			return err
		}
		if err := want("on a communicator of its own", got[i], 1000*((me+size-1)%size)+i); err != nil {
			return err
		}
	}
	if err := mpi.Waitall(rs); err != nil {
		return err
	}
	for _, c := range all {
		if err := c.Free(); err != nil {
			return err
		}
	}
	return firstError(parents[1].Free(), parents[2].Free())
})

func TestIdupEndsWithItsContext(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, idupGivenUp, fabric) })
}

// An Idup that not all ranks call ends with its context; later collectives are in step.
var idupGivenUp = body("Idup is given up", func(_ context.Context, world *mpi.Comm) error {
	c, err := world.Dup()
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	var made *mpi.Comm
	if world.Rank() == 0 {
		r, err := c.WithContext(ctx).Idup(&made)
		if err != nil {
			return err
		}
		end()
		_, err = r.Wait()
		_, again := c.WithContext(ctx).Idup(&made)
		if err := firstError(wantError("Idup", err, context.Canceled), want("no communicator", made, nil),
			wantMisuse("Idup", again, context.Canceled)); err != nil {
			return err
		}
	}
	return firstError(mpi.Barrier(world), c.Free())
})
