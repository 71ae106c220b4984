package tcp

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameLost reports which lanes its sender has closed, and what it has received.
type frameLost struct{ ordinaryFrame }

func (frameLost) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	return sequence.Data, stopNone, r.m.hearLost(i)
}

// hearLost handles the peer's report: it queues the frames of the peer's closed lanes for resending, except
// those that have arrived.
func (m *multiLane) hearLost(i *incoming) error {
	t, ranges, err := frame.ParseLost(i.control, i.Ack)
	if err != nil {
		return err
	}
	m.failover.Merge(t, func(number uint16) {
		if o := m.find(number); o != nil {
			m.lose(o, errLostThere)
		} else {
			m.failover.Closed(number)
		}
		m.send.out.Resend(number, ranges)
	})
	if n := m.failover.Len(); n > 2*frame.MaxLostLanes {
		return fmt.Errorf("%w: %d lost lanes are unconfirmed", transport.ErrProtocol, n)
	}
	return nil
}

var errLostThere = errors.New("the peer has lost it")

// sendLost reports to the peer which lanes are closed here, and what has arrived.
func (s *laneSender) sendLost() {
	l := s.idleLane()
	if l == nil {
		return
	}
	t := s.m.failover.State()
	payload := frame.AppendLost(nil, t, s.m.recv.in.Next(), s.m.recv.in.Ranges())
	if !l.sendUnnumbered(frame.Header{Op: frame.Lost, Flags: frame.Last}, payload) {
		s.m.failover.Unsent()
	}
}
