package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

func TestViewsOfAnyLength(t *testing.T) {
	envs := [][]string{{"WEFT_FABRIC=shm"}, {"WEFT_FABRIC=tcp", "WEFT_LANES=2"},
		{"WEFT_FABRIC=tcp", "WEFT_RENDEZVOUS=write"}, {"WEFT_CHECK=1"}, {"WEFT_FABRIC=tcp"},
		{"WEFT_FABRIC=tcp", "WEFT_TLS=on"}, {"WEFT_FABRIC=tcp", "WEFT_CHECKSUM=on"},
		{"WEFT_FABRIC=shm", "WEFT_RENDEZVOUS=write"}}
	for _, env := range envs[:testlength.Of(len(envs), testlength.InShort(4, 2))] {
		t.Run(fmt.Sprint(env), func(t *testing.T) { together(t, 2, viewsOfAnyLength, env...) })
	}
}

// A message that is a view at one end, at the other, or at both, before its receive is posted and after.
var viewsOfAnyLength = body("views of any length", func(_ context.Context, world *mpi.Comm) error {
	for _, n := range []int{1, 3, 100, 3_000, 8_192, 8_193, 12_288, 50_001, 300_000} {
		for way := range 6 {
			if n > 100_000 && way != 3 { // a view at both ends is enough
				continue
			}
			if err := viewEnds(world, n, way&1 != 0, way&2 != 0, way >= 3); err != nil {
				return fmt.Errorf("%d elements, way %d: %w", n, way, err)
			}
		}
	}
	return firstError(viewOrder(world), viewTruncated(world), viewCancelled(world), viewToSelf(world))
})

// triple is an element whose bytes do not divide a stage.
type triple struct{ a, b, c int32 }

func tripleOf(sequence, i int) triple { return triple{int32(sequence), int32(i), int32(sequence + i)} }

// everyThird is a column of a matrix, backwards.
func everyThird(data []triple, n int) mpi.View[triple] { return mpi.Strided(data, n, 1, -3) }

func viewEnds(world *mpi.Comm, n int, viewOut, viewIn, late bool) error {
	other := 1 - world.Rank()
	out, in := make([]triple, 3*n), make([]triple, 3*n)
	for i := range n {
		at := i
		if viewOut {
			at = (n - 1 - i) * 3
		}
		out[at] = tripleOf(n, i)
	}
	if late { // the message is there before its receive
		var r mpi.Request
		var err error
		if viewOut {
			r, err = mpi.IsendView(world, everyThird(out, n), other, 3)
		} else {
			r, err = mpi.Isend(world, out[:n], other, 3)
		}
		if err := firstError(err, mpi.Barrier(world), recvEnd(world, in, n, viewIn, other)); err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}
	if world.Rank() == 1 {
		if err := recvEnd(world, in, n, viewIn, other); err != nil {
			return err
		}
	}
	var err error
	if viewOut {
		err = mpi.SendView(world, everyThird(out, n), other, 3)
	} else {
		err = mpi.Send(world, out[:n], other, 3)
	}
	if err == nil && world.Rank() == 0 {
		err = recvEnd(world, in, n, viewIn, other)
	}
	return err
}

func recvEnd(world *mpi.Comm, in []triple, n int, view bool, from int) error {
	var st mpi.Status
	var err error
	if view {
		st, err = mpi.RecvView(world, everyThird(in, n), from, 3)
	} else {
		st, err = mpi.Recv(world, in[:n], from, 3)
	}
	if err := firstError(err, want("count", st.Count, n)); err != nil {
		return err
	}
	for i := range n {
		at := i
		if view {
			at = (n - 1 - i) * 3
		}
		if in[at] != tripleOf(n, i) {
			return fmt.Errorf("element %d is %v", i, in[at])
		}
	}
	return nil
}

// A view that no receive has matched does not hold up the messages after it.
func viewOrder(world *mpi.Comm) error {
	const n = 200_000
	if world.Rank() == 0 {
		r, err := mpi.IsendView(world, everyThird(make([]triple, 3*n), n), 1, 1)
		if err := firstError(err, mpi.Send(world, []int{7}, 1, 2)); err != nil {
			return err
		}
		_, err = r.Wait()
		return err
	}
	got := make([]int, 1)
	_, err := mpi.Recv(world, got, 0, 2)
	_, err2 := mpi.RecvView(world, everyThird(make([]triple, 3*n), n), 0, 1)
	return firstError(err, err2, want("message after the view", got[0], 7))
}

// What has no room is lost, and nothing is written beside the view.
func viewTruncated(world *mpi.Comm) error {
	if os.Getenv("WEFT_CHECK") != "" {
		return nil // a mistake, there
	}
	for _, n := range []int{20, 5_000, 100_000} {
		if world.Rank() == 0 {
			if err := firstError(mpi.SendView(world, everyThird(make([]triple, 3*n), n), 1, 1),
				mpi.Send(world, make([]triple, n), 1, 1)); err != nil {
				return err
			}
			continue
		}
		room := n - 7
		expected := slices.Repeat([]triple{{a: 5}}, 3*n)
		for i := range room {
			expected[3*i] = triple{}
		}
		for range 2 {
			in := slices.Repeat([]triple{{a: 5}}, 3*n)
			st, err := mpi.RecvView(world, everyThird(in, room), 0, 1)
			if err := firstError(wantError("RecvView", err, mpi.ErrTruncate), want("count", st.Count, room)); err != nil {
				return err
			}
			if !sameMemory(in, expected) {
				return fmt.Errorf("%d elements are not those that fit", n)
			}
		}
	}
	return mpi.Barrier(world)
}

// A view that nobody receives is taken back.
func viewCancelled(world *mpi.Comm) error {
	const n = 100_000
	if world.Rank() == 0 {
		r, err := mpi.IsendView(world, everyThird(make([]triple, 3*n), n), 1, 9)
		if err := firstError(err, r.Cancel()); err != nil {
			return err
		}
		st, err := r.Wait()
		if err != nil {
			return err
		}
		if !st.Cancelled() {
			return errors.New("the send is not cancelled")
		}
	}
	return mpi.Barrier(world)
}

func viewToSelf(world *mpi.Comm) error {
	me := world.Rank()
	for _, n := range []int{10, 100_000} {
		out, in := make([]triple, 3*n), make([]triple, 3*n)
		for i := range n {
			out[(n-1-i)*3] = tripleOf(n, i)
		}
		r, err := mpi.IsendView(world, everyThird(out, n), me, 3)
		if err := firstError(err, recvEnd(world, in, n, true, me)); err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
	}
	return nil
}
