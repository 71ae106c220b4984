package mpi_test

import (
	"context"
	"testing"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/mpi"
)

// everyKind has bodies with every kind of call, and the ranks that they need.
var everyKind = []struct {
	body  string
	ranks int
}{
	{modes, 2}, {persistent, 2}, {values, 3}, {views, 3}, {alltoallViews, 3}, {allForms, 3}, {onNeighbors, 4},
	{create, 3}, {createGroup, 3}, {split, 5}, {cart, 4}, {graph, 4}, {windowPutGet, 3}, {windowViews, 2},
	{windowAccumulate, 3}, {windowOperators, 2}, {windowRequests, 3}, {dynamicWindow, 3}, {windowLocks, 3},
	{updatesInParts, 2},
}

// TestEveryKindOfCall_InSmallSlots runs every kind of call where the slots of a ring are small: no message of
// weft's own needs larger ones. In short, the kinds take turns.
func TestEveryKindOfCall_InSmallSlots(t *testing.T) {
	t.Parallel()
	for turn, env := range [][]string{{"WEFT_PHASES=100"}, {"WEFT_PHASES=200,1000"}, {"WEFT_PHASES=640,16384"},
		{"WEFT_PHASES=100,4000", "WEFT_KEEP_SMALL=1"}} {
		for i, k := range everyKind {
			if i%4 != turn && !testlength.Whole() {
				continue
			}
			t.Run(env[0]+" "+k.body, func(t *testing.T) {
				t.Parallel()
				ranks(t, k.ranks, k.body, append([]string{"WEFT_FABRIC=tcp", "WEFT_PEER_TIMEOUT=60s"}, env...)...)
			})
		}
	}
}

// Accumulates whose operands and previous elements fit no slot: of 512 bytes, and elements of 256. The
// channels of the two ranks have different slots, as one of them has sent a longer message.
var updatesInParts = body("updates in parts", func(_ context.Context, world *mpi.Comm) error {
	me := world.Rank()
	win, err := mpi.WinCreate(world, make([]int64, 1000))
	wide, err2 := mpi.WinCreate(world, make([][32]int64, 2))
	if err := firstError(err, err2); err != nil {
		return err
	}
	if me == 0 {
		_, err = mpi.Recv(world, make([]byte, 800), 1, 1)
	} else {
		err = mpi.Send(world, make([]byte, 800), 0, 1)
	}
	if err := firstError(err, win.LockAll(), wide.LockAll()); err != nil {
		return err
	}
	operands, old := make([]int64, 1000), make([]int64, 1000)
	for i := range operands {
		operands[i] = int64(i)
	}
	for round := range int64(3) {
		if err := firstError(win.GetAccumulate(operands, old, 1-me, 0, mpi.Sum[int64]()), win.Flush(1-me)); err != nil {
			return err
		}
		for i, v := range old {
			if err := want("previous element", v, round*int64(i)); err != nil {
				return err
			}
		}
		is, will := [32]int64{31: round}, [32]int64{31: round + 1}
		was, err := wide.CompareAndSwap(is, will, 1-me, 1)
		if err := firstError(err, want("previous array", was, is)); err != nil {
			return err
		}
	}
	return firstError(win.UnlockAll(), wide.UnlockAll(), mpi.Barrier(world),
		want("the sum", win.Local()[999], 3*999), want("the array", wide.Local()[1], [32]int64{31: 3}),
		win.Free(), wide.Free())
})
