package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-mpi/weft/mpi"
)

func TestValues(t *testing.T) { atSizes(t, values) }

type particle struct {
	Name  string
	At    []float64
	Tags  map[string]int
	Mass  *float64
	Since time.Time
}

func newParticle(i int) particle {
	mass := float64(i) + 0.5
	return particle{strings.Repeat("π", i+1), make([]float64, 100*i+1), map[string]int{"rank": i}, &mass,
		time.Unix(int64(i), 0).UTC()}
}

type fixed struct {
	A int8
	B [3]float64
}

type ring struct{ Next *ring }

// Values of any type go to one rank, to all, and from all.
var values = body("values", func(_ context.Context, world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	for _, check := range []func() error{
		func() error { return carry(world, me, func(i int) int { return i * i }) },
		func() error {
			return carry(world, me, func(i int) fixed { return fixed{int8(i), [3]float64{1, 2, float64(i)}} })
		},
		func() error { return carry(world, me, func(i int) string { return strings.Repeat("x", 20_000*i) }) },
		func() error { return carry(world, me, newParticle) },
		func() error {
			return carry(world, me, func(i int) map[string][]int {
				return map[string][]int{"a": {i},
					"b": {i, 2}}
			})
		},
		func() error {
			return carry(world, me, func(i int) []string { return slices.Repeat([]string{"s"}, i+1) })
		},
		func() error { return carry(world, me, func(i int) *big.Int { return big.NewInt(int64(i)) }) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	union := mpi.NewOp(func(inout, in []map[string]int) {
		for i := range inout {
			maps.Copy(inout[i], in[i])
		}
	}, true)
	mine := map[string]int{fmt.Sprint("rank ", me): me, "last": me}
	all, err := mpi.AllreduceValue(world, mine, union)
	if err := firstError(err, want("keys", len(all), size+1), want("in rank order", all["last"], size-1),
		want("mine", len(mine), 2)); err != nil {
		return err
	}
	sum, err := mpi.AllreduceValue(world, 2.5, mpi.Sum[float64]())
	if err := firstError(err, want("sum", sum, 2.5*float64(size))); err != nil {
		return err
	}
	none, err := mpi.AllreduceValue(world, struct{}{}, mpi.NewOp(func(_, _ []struct{}) {}, true))
	if err := firstError(err, want("value without bytes", none, struct{}{})); err != nil {
		return err
	}
	nothing, st, err := mpi.RecvValue[string](world, mpi.ProcNull, 0)
	if err := firstError(err, want("value of ProcNull", nothing, ""),
		want("source", st.Source, mpi.ProcNull)); err != nil {
		return err
	}

	// What cannot be carried is refused at every rank that learns of it, and nobody waits.
	type hidden struct{ Open, secret int }
	type nested struct{ Deep []hidden }
	_ = hidden{}.secret
	loop := &ring{}
	loop.Next = loop
	type maker struct{ Make []func() }
	_, bcast := mpi.BcastValue(world, maker{}, size-1)
	_, gather := mpi.AllgatherValues(world, nested{Deep: []hidden{{1, 2}}})
	_, round := mpi.AllgatherValues(world, loop)
	_, null := mpi.AllgatherValues[*particle](world, nil)
	send := mpi.SendValue(world, make(chan int), next, 0)
	for text, err := range map[string]error{
		".Make is a func": bcast, ".Deep.secret is not exported": gather, "does it refer to itself": round,
		"it is a chan": send,
		"nil pointer":  null,
	} {
		if !errors.Is(err, mpi.ErrType) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %v, want %q", err, text)
		}
	}
	// One rank's value alone.
	var one any = 1
	if me == size-1 {
		one = make(chan int)
	}
	_, err = mpi.AllgatherValues(world, one)
	if !errors.Is(err, mpi.ErrType) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: ", size-1)) {
		return fmt.Errorf("got %v, want an error of rank %d", err, size-1)
	}
	// Another type than was sent.
	if err := mpi.SendValue(world, "a long text", next, 1); err != nil {
		return err
	}
	_, _, err = mpi.RecvValue[int](world, previous, 1)
	if err := wantError("RecvValue of another type", err, mpi.ErrType); err != nil {
		return err
	}
	// A context that ends leaves the ranks in step.
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(me)*100*time.Microsecond)
	defer cancel()
	_, _ = mpi.AllgatherValues(world.WithContext(ctx), strings.Repeat("x", 100_000))
	return checkedSum(world, 4)
})

// carry sends values by every call.
func carry[T any](world *mpi.Comm, me int, value func(i int) T) error {
	size := world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	same := func(what string, got T, i int) error {
		if !reflect.DeepEqual(got, value(i)) {
			return fmt.Errorf("%s: got %.100v, want %.100v", what, fmt.Sprint(got), fmt.Sprint(value(i)))
		}
		return nil
	}
	sent := make(chan error, 1)
	go func() { sent <- mpi.SendValue(world, value(me+1), next, 3) }()
	got, st, err := mpi.RecvValue[T](world, mpi.AnySource, 3)
	if err := firstError(err, <-sent, same("received", got, previous+1),
		want("source", st.Source, previous), want("count", st.Count, 1)); err != nil {
		return err
	}
	for root := range size {
		all, err := mpi.BcastValue(world, value(me), root)
		if err := firstError(err, same("broadcast", all, root)); err != nil {
			return err
		}
		list, err := mpi.GatherValues(world, value(me), root)
		if err := firstError(err, want("values", len(list), size*boolInt(me == root))); err != nil {
			return err
		}
		for i, v := range list {
			if err := same("gathered", v, i); err != nil {
				return err
			}
		}
	}
	list, err := mpi.AllgatherValues(world, value(me))
	if err != nil {
		return err
	}
	for i, v := range list {
		if err := same("gathered by all", v, i); err != nil {
			return err
		}
	}
	return want("values", len(list), size)
}

// An error names the part of a type that cannot be sent.
func TestTypeOfElements(t *testing.T) { ranks(t, 1, elementTypes) }

type (
	deep  struct{ Names []string }
	outer struct {
		A    int
		Deep deep
	}
)

var elementTypes = body("element types", func(_ context.Context, world *mpi.Comm) error {
	for text, err := range map[string]error{
		"outer: .Deep.Names is a slice":     mpi.Send(world, []outer{}, 0, 0),
		"string: it is a string":            mpi.Send(world, []string{}, 0, 0),
		"[2][]int: [] is a slice":           mpi.Send(world, [][2][]int{}, 0, 0),
		"[2]mpi_test.outer: [].Deep.Names ": mpi.Send(world, [][2]outer{}, 0, 0),
	} {
		if !errors.Is(err, mpi.ErrType) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %v, want %q", err, text)
		}
	}
	return nil
})
