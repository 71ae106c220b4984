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

func TestValues(t *testing.T) {
	atSizes(t, values)
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 3, values, fabric, nothingBuffered, smallestSlots) })
}

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
		func() error { return carry(world, me, func(i int) string { return strings.Repeat("x", 10_000*i) }) },
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
		func() error { return carry(world, me, func(i int) []float64 { return make([]float64, 2_000*i) }) },
		func() error { return carry(world, me, func(i int) []fixed { return make([]fixed, i+1) }) },
		func() error { return carry(world, me, func(i int) []byte { return make([]byte, i) }) },
		func() error { return reduceValues(world) },
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
	sent, err := mpi.IsendValue(world, "a long text", next, 1)
	if err != nil {
		return err
	}
	_, _, err = mpi.RecvValue[int](world, previous, 1)
	if err := wantError("RecvValue of another type", err, mpi.ErrType); err != nil {
		return err
	}
	if _, err := sent.Wait(); err != nil {
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
		wanted := value(i)
		if a, is := any(got).([]float64); is { // there are many elements for reflection
			if b := any(wanted).([]float64); a != nil && sameMemory(a, b) {
				return nil
			}
		} else if reflect.DeepEqual(got, wanted) {
			return nil
		}
		return fmt.Errorf("%s: got %.100v, want %.100v", what, fmt.Sprint(got), fmt.Sprint(wanted))
	}
	sent := make(chan error, 1)
	go func() { sent <- mpi.SendValue(world, value(me+1), next, 3) }()
	got, st, err := mpi.RecvValue[T](world, mpi.AnySource, 3)
	if err := firstError(err, <-sent, same("received", got, previous+1),
		want("source", st.Source, previous), want("count", st.Count, 1)); err != nil {
		return err
	}
	if got, st, err = mpi.SendrecvValue(world, value(me), next, 4, mpi.AnySource, 4); err != nil {
		return err
	}
	if err := firstError(same("exchanged", got, previous), want("source", st.Source, previous)); err != nil {
		return err
	}
	if err := carryLater(world, value, same); err != nil {
		return err
	}
	for _, root := range slices.Compact([]int{0, size / 2, size - 1}) {
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
		var in []T
		for i := range size {
			if me == root {
				in = append(in, value(i+1))
			}
		}
		one, err := mpi.ScatterValues(world, in, root)
		if err := firstError(err, same("scattered", one, me+1)); err != nil {
			return err
		}
	}
	in := make([]T, size)
	for i := range in {
		in[i] = value(me + i)
	}
	exchanged, err := mpi.AlltoallValues(world, in)
	if err := firstError(err, want("values", len(exchanged), size)); err != nil {
		return err
	}
	for i, v := range exchanged {
		if err := same("exchanged by all", v, me+i); err != nil {
			return err
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
func TestTypeOfElements(t *testing.T) { together(t, 1, elementTypes) }

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

// carryLater sends values by calls that do not block: two receives get them in the order in which they began.
func carryLater[T any](world *mpi.Comm, value func(i int) T, same func(what string, got T, i int) error) error {
	me, size := world.Rank(), world.Size()
	next, previous := (me+1)%size, (me+size-1)%size
	first, err := mpi.IrecvValue[T](world, previous, 5)
	second, err2 := mpi.IrecvValue[T](world, mpi.AnySource, mpi.AnyTag)
	none, err3 := mpi.IrecvValue[T](world, previous, 6)
	null, err4 := mpi.IrecvValue[T](world, mpi.ProcNull, 6)
	if err := firstError(err, err2, err3, err4); err != nil {
		return err
	}
	var sends []mpi.Request
	for i := range 2 {
		r, err := mpi.IsendValue(world, value(me+i), next, 5)
		if err != nil {
			return err
		}
		sends = append(sends, r)
	}
	for ok := false; !ok; {
		var got T
		var st mpi.Status
		if got, st, ok, err = first.Test(); err != nil {
			return err
		}
		if ok {
			if err := firstError(same("first", got, previous), want("source", st.Source, previous)); err != nil {
				return err
			}
		}
	}
	got, st, err := second.Wait()
	if err := firstError(err, same("second", got, previous+1), want("tag", st.Tag, 5), mpi.Waitall(sends),
		none.Cancel()); err != nil {
		return err
	}
	_, st, err = none.Wait()
	_, nullSt, err2 := null.Wait()
	_, _, used := none.Wait()
	return firstError(err, err2, want("cancelled", st.Cancelled(), true),
		want("source of no rank", nullSt.Source, mpi.ProcNull), wantError("Wait again", used, mpi.ErrRequest))
}

// reduceValues combines values that travel as their memory, and others.
func reduceValues(world *mpi.Comm) error {
	me, size := world.Rank(), world.Size()
	text := mpi.NewOp(func(inout, in []string) {
		for i := range inout {
			inout[i] += in[i]
		}
	}, false)
	letters := "abcdefghijklmnop"
	for root := range size {
		sum, err := mpi.ReduceValue(world, me+1, mpi.Sum[int](), root)
		all, err2 := mpi.ReduceValue(world, letters[me:me+1], text, root)
		wantSum, wantAll := 0, ""
		if me == root {
			wantSum, wantAll = size*(size+1)/2, letters[:size]
		}
		if err := firstError(err, err2, want("sum", sum, wantSum), want("all", all, wantAll)); err != nil {
			return err
		}
	}
	sum, err := mpi.ExscanValue(world, me+1, mpi.Sum[int]())
	before, err2 := mpi.ExscanValue(world, letters[me:me+1], text)
	return firstError(err, err2, want("sum before", sum, me*(me+1)/2), want("before", before, letters[:me]))
}

// TestValues_OfAnotherType: a value that is received as another type gives ErrType at its receiver, which says
// what was sent, and leaves the ranks in step.
func TestValues_OfAnotherType(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, otherTypes, fabric) })
}

var otherTypes = body("values of other types", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	peer := 1 - me
	refused := func(what string, err error, says string) error {
		if !errors.Is(err, mpi.ErrType) || !strings.Contains(fmt.Sprint(err), says) {
			return fmt.Errorf("%s: got %v, want ErrType with %q", what, err, says)
		}
		return nil
	}
	type pair struct{ A, B int32 }
	type same struct{ X, Y int32 }
	for i, c := range []struct {
		send    func() error
		receive func() error
		says    string // "" where the receive takes it
	}{
		{func() error { return mpi.SendValue(world, 7, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[float64](world, peer, 0)) }, "sent is of type int, "},
		{func() error { return mpi.SendValue(world, pair{1, 2}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[int64](world, peer, 0)) }, "struct of 8 bytes"},
		{func() error { return mpi.SendValue(world, pair{1, 2}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[same](world, peer, 0)) }, ""},
		{func() error { return mpi.SendValue(world, 7, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[int64](world, peer, 0)) }, ""},
		{func() error { return mpi.SendValue(world, []float32{1, 2}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[[]int32](world, peer, 0)) }, "a slice of float32"},
		{func() error { return mpi.SendValue(world, []float64{1}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[float64](world, peer, 0)) }, "a slice of float64"},
		{func() error { return mpi.SendValue(world, "text", peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[[]byte](world, peer, 0)) }, "another string type"},
		{func() error { return mpi.SendValue(world, map[string]int{}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[map[int]int](world, peer, 0)) }, "another map type"},
		{func() error { return mpi.SendValue(world, []float64{1, 2}, peer, 0) },
			func() error { return ignoring(mpi.Recv(world, make([]float64, 3), peer, 0)) }, "not a whole number"},
		{func() error { return mpi.SendValue(world, 7, peer, 0) },
			func() error { return ignoring(mpi.Recv(world, make([]int, 1), peer, 0)) }, "not a whole number"},
		{func() error { return mpi.Send(world, []float64{1, 2, 3}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[[]float64](world, peer, 0)) }, "not sent by SendValue"},
		{func() error { return mpi.Send(world, []byte{1, 2, 3}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[[]byte](world, peer, 0)) }, "not sent by SendValue"},
		{func() error { return mpi.Send(world, []byte{}, peer, 0) },
			func() error { return ignoring3(mpi.RecvValue[string](world, peer, 0)) }, "not sent by SendValue"},
	} {
		var err error
		if me == 0 {
			err = c.send()
		} else if err = c.receive(); c.says != "" {
			err = refused("receive", err, c.says)
		}
		if err != nil {
			return fmt.Errorf("number %d: %w", i, err)
		}
	}
	if me == 0 {
		_, bcast := mpi.BcastValue(world, 7, 0)
		_, gather := mpi.GatherValues(world, 7, 0)
		_, all := mpi.AllgatherValues(world, 7)
		_, scatter := mpi.ScatterValues(world, []int{1, 2}, 0)
		_, alltoall := mpi.AlltoallValues(world, []int{1, 2})
		_, sum := mpi.AllreduceValue(world, 7, mpi.Sum[int]())
		_, reduce := mpi.ReduceValue(world, 7, mpi.Sum[int](), 0)
		_, exscan := mpi.ExscanValue(world, 7, mpi.Sum[int]())
		if err := firstError(bcast, scatter, refused("Gather", gather, "rank 1: "),
			refused("Allgather", all, "of type float64"), refused("Alltoall", alltoall, "of type float64"),
			refused("Allreduce", sum, "different types"), refused("Reduce", reduce, "different types"),
			refused("Exscan", exscan, "different types")); err != nil {
			return err
		}
	} else {
		_, bcast := mpi.BcastValue(world, 0.5, 0)
		_, gather := mpi.GatherValues(world, 0.5, 0)
		_, all := mpi.AllgatherValues(world, 0.5)
		_, scatter := mpi.ScatterValues[float64](world, nil, 0)
		_, alltoall := mpi.AlltoallValues(world, []float64{1, 2})
		union := mpi.NewOp(func(_, _ []string) {}, true)
		_, sum := mpi.AllreduceValue(world, "text", union)
		_, reduce := mpi.ReduceValue(world, "text", union, 0)
		_, exscan := mpi.ExscanValue(world, 0.5, mpi.Sum[float64]())
		if err := firstError(gather, refused("Bcast", bcast, "rank 0: "), refused("Allgather", all, "of type int"),
			refused("Scatter", scatter, "of type int"), refused("Alltoall", alltoall, "of type int"),
			refused("Allreduce", sum, "different types"), refused("Reduce", reduce, "different types"),
			refused("Exscan", exscan, "different types")); err != nil {
			return err
		}
	}
	// The wrong number of values, and a value that cannot be sent, at one rank.
	_, scatter := mpi.ScatterValues(world, make([]int, 1), 0)
	_, alltoall := mpi.AlltoallValues(world, make([]int, 1+me))
	_, unsent := mpi.ScatterValues(world, make([]func(), 2), 0)
	if me == 0 {
		if err := firstError(wantError("Scatter", scatter, mpi.ErrCount), wantError("Alltoall", alltoall,
			mpi.ErrCount), wantError("Scatter", unsent, mpi.ErrType)); err != nil {
			return err
		}
	} else if err := firstError(refused("Scatter", scatter, "1 values for 2 ranks"), refused("Alltoall", alltoall,
		"1 values for 2 ranks"), wantError("Scatter", unsent, mpi.ErrType)); err != nil {
		return err
	}
	return checkedSum(world, 4)
})
