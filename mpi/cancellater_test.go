package mpi_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/mpi"
)

// TestCancelledSendIsNotFoundLater: when a later message of the same sender says that a send was cancelled, no
// probe finds it, whatever its size and whoever else sends; and if it says that the send was not cancelled, a
// probe does (MPI 4.1, 3.8.4).
func TestCancelledSendIsNotFoundLater(t *testing.T) {
	onWires(t, func(t *testing.T, wire []string) {
		together(t, 3, cancelledLater, wire...)
		together(t, 3, cancelledLater, append(wire, "WEFT_UNEXPECTED_MAX=1")...)
	})
}

var cancelledLater = body("cancelled later", func(_ context.Context, world *mpi.Comm) error {
	const there, cancelled, over = 1, 2, 3 // tags beside those of the rounds, which begin with first
	const first, rounds = 10, 30
	sizes := []int{0, 1, 100, 700, 20_000, 300_000}
	me, senders := world.Rank(), world.Size()-1
	if me < senders {
		for i := range rounds {
			r, err := mpi.Issend(world, make([]byte, sizes[i%len(sizes)]), senders, first+i)
			if err == nil && i%2 == 0 {
				_, err = mpi.Recv(world, []byte(nil), senders, there)
			}
			if err := firstError(err, r.Cancel()); err != nil {
				return err
			}
			st, err := r.Wait()
			if err := firstError(err, mpi.SendValue(world, st.Cancelled(), senders, cancelled)); err != nil {
				return err
			}
			// The next message of this tag comes when the receiver has looked.
			if _, err := mpi.Recv(world, []byte(nil), senders, over); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range rounds {
		tag := first + i
		for s := range senders {
			if i%2 == 0 { // else the send is cancelled while it may be on its way
				if _, err := mpi.Probe(world, s, tag); err != nil {
					return err
				}
				if err := mpi.Send(world, []byte(nil), s, there); err != nil {
					return err
				}
			}
			gone, _, err := mpi.RecvValue[bool](world, s, cancelled)
			if err != nil {
				return err
			}
			st, found, err := mpi.Iprobe(world, s, tag)
			if err := firstError(err, want("found", found, !gone)); err != nil {
				return fmt.Errorf("round %d of rank %d, cancelled: %v: %w", i, s, gone, err)
			}
			if found {
				if _, err := mpi.Recv(world, make([]byte, st.Bytes()), s, tag); err != nil {
					return err
				}
			}
			if err := mpi.Send(world, []byte(nil), s, over); err != nil {
				return err
			}
		}
	}
	return nil
})
