package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp"
)

const (
	holeLanes    = 4
	holeMessages = 64 // Writes in flight
	holePatience = 20 * time.Second
)

// holeSizes are the sizes of the Writes.
var holeSizes = []int{64 << 10, 256 << 10, 1 << 20}

// holes makes one device of this process write to another over several lanes, of which one is lost while
// Writes are in flight: first it stops, and when half of the Writes have arrived it breaks. By then the bytes
// beyond the hole are in place, while a receiver that takes bytes in order would buffer them.
func holes(s *session) error {
	s.heading()
	for _, n := range holeSizes {
		var figures [len(loss{})][]float64 // by repeat
		repeats, _ := s.iterations(n)
		for range repeats {
			l, err := s.lostLane(n)
			if err != nil {
				return fmt.Errorf("%s of %d bytes: %w", s.Name, n, err)
			}
			for i, v := range l {
				figures[i] = append(figures[i], v)
			}
		}
		row := []float64{float64(n)}
		for _, all := range figures {
			row = append(row, median(all))
		}
		s.row(row)
	}
	return s.out.err
}

// loss has the figures of the loss of a lane.
type loss [6]float64

const (
	lossBeyond  = iota // bytes beyond the first hole that are in place
	lossHeld           // bytes buffered
	lossPlaced         // mean microseconds until a Write was in place
	lossInOrder        // and until all before it were, too
	lossResent         // bytes
	lossHoles          // open at once
)

// lostLane sends Writes of n bytes over lanes, one of which is lost.
func (s *session) lostLane(n int) (l loss, err error) {
	p, err := newLanePair(n * holeMessages)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	p.cut.arm()
	began := s.now()
	for i := range holeMessages {
		if err := p.write(i*n, n); err != nil {
			return l, err
		}
		for i == 0 && !p.cut.stopped() { // the first Write must miss a part
			if p.poll(); s.now()-began > holePatience.Seconds() {
				return l, errors.New("the first Write does not go out")
			}
		}
	}
	into := p.into.Bytes()
	at := make([]float64, holeMessages) // when each was in place; 0: not yet
	missing, moved, lost := holeMessages, time.Now(), false
	for missing > 0 {
		p.poll()
		for i := range at {
			if at[i] == 0 && binary.NativeEndian.Uint64(into[(i+1)*n-8:]) != 0 {
				at[i], moved = s.now()-began, time.Now()
				missing--
			}
		}
		if missing <= holeMessages/2 && !lost {
			p.cut.cut()
			lost = true
			l[lossBeyond], l[lossHeld] = beyondHole(into, n)
		}
		if quiet := time.Since(moved); quiet > holePatience {
			return l, fmt.Errorf("%d of %d Writes have not arrived after %v: %w", missing, holeMessages,
				quiet, errors.Join(p.ends[0].qp.Err(), p.ends[1].qp.Err()))
		}
	}
	last := 0.
	for _, t := range at {
		last = max(last, t)
		l[lossPlaced] += t * 1e6 / holeMessages
		l[lossInOrder] += last * 1e6 / holeMessages
	}
	l[lossResent], l[lossHoles] = float64(p.lanes(0).Resent), float64(p.lanes(1).MaxHoles)
	if p.lanes(0).Down == 0 {
		return l, errors.New("no lane was lost while Writes were under way")
	}
	return l, nil
}

// beyondHole counts the bytes, of Writes of n bytes each, that are in place beyond the first missing byte,
// which a receiver that takes bytes in order would hold. held is the number of buffered bytes: the last word
// of each Write with a hole. Missing bytes are zero, received bytes are not.
func beyondHole(b []byte, n int) (beyond, held float64) {
	hole := false
	for at := 0; at < len(b); at += 8 {
		there := binary.NativeEndian.Uint64(b[at:]) != 0
		switch last := at%n == n-8; {
		case hole && there:
			beyond += 8
		case there:
		case last && binary.NativeEndian.Uint64(b[at-8:]) != 0:
			held += 8
		default:
			hole = true
		}
	}
	return beyond, held
}

// lanePair is two devices of this process, connected by several lanes that can be lost.
type lanePair struct {
	ends [2]laneEnd
	cut  *laneCut
	from transport.MR // of the first
	into transport.MR // of the second
}

// laneEnd is one of the devices.
type laneEnd struct {
	device transport.Device
	pd     transport.PD
	cq     transport.CQ
	at     transport.Endpoint
	made   chan transport.QP
	qp     transport.QP
}

func (e *laneEnd) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SendWR: 2 * holeMessages, RecvWR: 1,
		Reads: 1}, nil, nil
}
func (e *laneEnd) Connected(_ uint32, qp transport.QP, _ []byte) { e.made <- qp }
func (*laneEnd) Refused(string, error)                           {}

// newLanePair connects two devices, with n bytes of memory to write from and to.
func newLanePair(n int) (p *lanePair, err error) {
	p = &lanePair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	job := transport.Identity{Job: "holes", Size: 2}
	rand.Read(job.Secret[:])
	for rank := range p.ends {
		job.Rank = uint32(rank)
		if err := p.ends[rank].open(job); err != nil {
			return p, err
		}
	}
	if p.from, err = p.ends[0].pd.Alloc(n, 0); err != nil {
		return p, err
	}
	if p.into, err = p.ends[1].pd.Alloc(n, transport.RemoteWrite); err != nil {
		return p, err
	}
	for i := range p.from.Bytes() {
		p.from.Bytes()[i] = 0xff
	}
	clear(p.into.Bytes())
	if p.cut, err = newLaneCut(p.ends[1].at.Addr()); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), holePatience)
	defer cancel()
	if err := p.ends[0].at.Connect(ctx, 1, p.cut.Addr()); err != nil {
		return p, err
	}
	for i := range p.ends {
		p.ends[i].qp = <-p.ends[i].made
	}
	for p.lanes(0).Lanes < holeLanes || p.lanes(1).Lanes < holeLanes {
		if p.poll(); ctx.Err() != nil {
			return p, fmt.Errorf("only %d of %d lanes are there", p.lanes(0).Lanes, holeLanes)
		}
	}
	return p, nil
}

func (e *laneEnd) open(as transport.Identity) (err error) {
	e.made = make(chan transport.QP, 1)
	if e.device, err = tcp.New(tcp.Options{Lanes: holeLanes}); err != nil {
		return err
	}
	if e.pd, err = e.device.AllocPD(); err != nil {
		return err
	}
	if e.cq, err = e.device.CreateCQ(4*holeMessages, 0); err != nil {
		return err
	}
	e.at, err = e.device.Listen(as, e)
	return err
}

// write posts a Write of n bytes.
func (p *lanePair) write(at, n int) error {
	return p.ends[0].qp.PostSend(&transport.SendWR{Op: transport.OpWrite,
		Local:  []transport.SGE{{MR: p.from, Offset: at, Length: n}},
		Remote: []transport.Segment{{Key: p.into.Key(), Offset: uint64(at), Length: uint64(n)}}})
}

func (p *lanePair) poll() {
	var room [holeMessages]transport.WC
	p.ends[0].cq.Poll(room[:])
	p.ends[1].cq.Poll(room[:])
}

func (p *lanePair) lanes(end int) transport.LaneStats {
	return p.ends[end].qp.(transport.LaneCounter).Lanes()
}

func (p *lanePair) close() (err error) {
	for i := range p.ends {
		if d := p.ends[i].device; d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	if p.cut != nil {
		p.cut.Close()
	}
	return err
}

// holeColumns are the columns of the table.
var holeColumns = []column{
	sizeColumn,
	{name: "in_order_memory", heading: "In-order memory", unit: "bytes", width: 18, form: whole},
	{name: "memory", heading: "Held", unit: "bytes", width: 12, form: whole},
	{name: "placed", heading: "Placed(us)", unit: "us", width: 16},
	{name: "in_order", heading: "In order(us)", unit: "us", width: 16},
	{name: "resent", heading: "Resent", unit: "bytes", width: 14, form: whole},
	{name: "holes", heading: "Holes", width: 8, form: whole},
}
