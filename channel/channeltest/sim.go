package channeltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/sim"
)

// Side is one of two connected ranks.
type Side struct {
	Device transport.Device
	PD     transport.PD
	CQ     transport.CQ
	QP     transport.QP
	Peer   []byte // the other side's private data
}

// Shape has the properties of a Sim's queue pairs, and the private data that the sides exchange.
type Shape struct {
	SendWR, RecvWR, Reads int
	Private               func(rank int, pd transport.PD) ([]byte, error)
}

// Sim is two connected ranks of a simulated network. It depends only on the seed and on the calls.
type Sim struct {
	*sim.Network
	Sides [2]*Side
}

// acceptor is the acceptor of a side.
type acceptor struct {
	side    *Side
	shape   Shape
	private []byte
	refused error
}

func (a *acceptor) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{
		PD: a.side.PD, SendCQ: a.side.CQ, RecvCQ: a.side.CQ, SendWR: a.shape.SendWR, RecvWR: a.shape.RecvWR,
		Reads: a.shape.Reads,
	}, a.private, nil
}

func (a *acceptor) Connected(_ uint32, qp transport.QP, private []byte) {
	a.side.QP, a.side.Peer = qp, private
}

func (a *acceptor) Refused(_ string, err error) { a.refused = err }

// NewSim connects two ranks.
func NewSim(seed uint64, shape Shape) (*Sim, error) {
	s := &Sim{Network: sim.NewNetwork(seed, sim.ManualConnect())}
	var ends [2]transport.Endpoint
	for i := range s.Sides {
		side := &Side{Device: s.Network.Device()}
		s.Sides[i] = side
		var err error
		if side.PD, err = side.Device.AllocPD(); err != nil {
			return nil, err
		}
		if side.CQ, err = side.Device.CreateCQ(1<<12, 0); err != nil {
			return nil, err
		}
		a := &acceptor{side: side, shape: shape}
		if a.private, err = shape.Private(i, side.PD); err != nil {
			return nil, err
		}
		id := transport.Identity{Job: "channeltest", Rank: uint32(i), Size: 2}
		if ends[i], err = side.Device.Listen(id, a); err != nil {
			return nil, err
		}
	}
	return s, s.connect(ends)
}

// connect completes the attempt of rank 0.
func (s *Sim) connect(ends [2]transport.Endpoint) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- ends[0].Connect(ctx, 1, ends[1].Addr()) }()
	for {
		select {
		case err := <-result:
			if err == nil && (s.Sides[0].QP == nil || s.Sides[1].QP == nil) {
				err = errors.New("connected, and nobody was told")
			}
			if err != nil {
				return fmt.Errorf("connect: %w", errors.Join(err, s.Close()))
			}
			return nil
		default:
			if !s.Step() {
				runtime.Gosched() // the goroutine that connects has the next step
			}
		}
	}
}

// Close releases both devices.
func (s *Sim) Close() error {
	var errs []error
	for _, side := range s.Sides {
		if side != nil {
			errs = append(errs, side.Device.Close())
		}
	}
	return errors.Join(errs...)
}
