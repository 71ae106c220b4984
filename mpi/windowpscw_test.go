package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

func TestExposureAndMessagesOfTheProgram(t *testing.T) {
	fabricsInTurn(t, func(t *testing.T, fabric string) { together(t, 2, exposureBesideMessages, fabric) })
}

// The window's communicator is free for the program: its messages, whatever their tags, are no Post and no
// Complete, and its receives and probes find neither.
var exposureBesideMessages = body("exposure beside messages", func(_ context.Context, world *mpi.Comm) error {
	win, err := mpi.WinAllocate[int64](world, 1)
	if err != nil {
		return err
	}
	c, me := win.Comm(), world.Rank()
	other, err := world.Group().Incl(1 - me)
	if err != nil {
		return err
	}
	for tag := range 4 {
		if err := mpi.Send(c, []byte{byte(tag), 1, 2}, 1-me, tag); err != nil {
			return err
		}
	}
	if _, err := mpi.Probe(c, 1-me, 3); err != nil {
		return err
	}
	if me == 1 {
		return firstError(mpi.Barrier(world), win.Post(other), mpi.Send(c, []byte{4}, 0, 4),
			gaveUp("Wait before the Complete", win, func(w *mpi.Win[int64]) error { return w.Wait() }),
			mpi.Barrier(world), win.Wait(), want("what was put", win.Local()[0], 7), takeTags(c, 4),
			win.Free())
	}
	return firstError(gaveUp("Start before the Post", win,
		func(w *mpi.Win[int64]) error { return w.Start(other) }), mpi.Barrier(world), mpi.Barrier(world),
		takeTags(c, 5), win.Start(other), win.Put([]int64{7}, 1, 0), win.Complete(), win.Free())
})

// takeTags receives messages with the tags from 0 on, and whatever else there is before them.
func takeTags(c *mpi.Comm, n int) error {
	b := make([]byte, 3)
	for tag := range n {
		if st, err := mpi.Recv(c, b, mpi.AnySource, mpi.AnyTag); err != nil || st.Tag != tag ||
			b[0] != byte(tag) {
			return fmt.Errorf("receive %d got %v, tag %d: %w", tag, b, st.Tag, err)
		}
	}
	return nil
}
