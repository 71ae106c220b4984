package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameLost tells which lanes its sender has closed, and what has arrived.
type frameLost struct{ ordinaryFrame }

func (frameLost) arrived(b *multiLane, i *incoming) (sequence.Kind, stop, error) {
	return sequence.Data, stopNone, b.hearLost(i)
}

// hearLost takes the peer's report: what its lost lanes carried is sent again, unless it has arrived.
func (b *multiLane) hearLost(i *incoming) error {
	t, ranges, err := frame.ParseLost(i.control, i.Ack)
	if err != nil {
		return err
	}
	b.failover.Hear(t, func(number uint16) {
		if o := b.find(number); o != nil {
			b.lose(o, errLostThere)
		} else {
			b.failover.Closed(number)
		}
		b.out.Lost(number, ranges)
	})
	if n := b.failover.Len(); n > 2*frame.MaxLostLanes {
		return fmt.Errorf("%w: %d lanes are lost and not forgotten", transport.ErrProtocol, n)
	}
	return nil
}

var errLostThere = errors.New("the peer has lost it")

// sendLost tells the peer which lanes are closed here, and what has arrived.
func (b *multiLane) sendLost() {
	l := b.idleLane()
	if l == nil {
		return
	}
	t := b.failover.Tell(nil)
	payload := frame.AppendLost(nil, t, b.in.Next(), b.in.Ranges(nil))
	if !l.sendUnnumbered(frame.Header{Op: frame.Lost, Flags: frame.Last}, payload) {
		b.failover.Unsent()
	}
}
