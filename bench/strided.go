package bench

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi"
)

// packings compares messages of views with messages that the program packs.
var packings = &kind{
	columns: tableOf("us", sizeColumn,
		column{name: "view", heading: "View(us)", unit: "us", width: 20, of: valueOf},
		column{name: "packed", heading: "Packed(us)", unit: "us", width: 20,
			of: func(c *cell) float64 { return c.baseline }},
		column{name: "ratio", heading: "View/Packed", width: 20,
			of: func(c *cell) float64 { return c.value / c.baseline }}),
	datatype: "MPI_DOUBLE", element: wordSize, min: wordSize, max: 4 << 20, axes: latencyAxes, tails: true,
	counts: counts{10000, 100, 1000, 10},
}

const (
	rowLength   = 8  // of the matrix of which a column is sent
	alternation = 20 // stretches in which the two ways take turns, so that what disturbs one disturbs both
)

// columnEnds are a column of a matrix that is sent, and one of another that is received.
type columnEnds struct {
	s         *session
	out, in   []float64 // matrices
	send      mpi.View[float64]
	recv      mpi.View[float64]
	sendBuf   []float64
	recvBuf   []float64
	other     int
	begins    bool
	sequences int
}

// strided is a ping-pong of a column of a matrix: as views, and packed and unpacked by hand in plain loops.
func strided(s *session, n int) (cell, error) {
	count := n / wordSize
	x := columnEnds{s: s, out: make([]float64, count*rowLength), in: make([]float64, count*rowLength),
		sendBuf: make([]float64, count), recvBuf: make([]float64, count)}
	x.send = mpi.Strided(x.out[1:], count, 1, rowLength)
	x.recv = mpi.Strided(x.in[2:], count, 1, rowLength)
	x.other, x.begins = s.partner()
	timed, warmup := s.iterations(n)
	watch := s.stopwatch()
	took := [2]float64{}
	if err := x.stretch(x.packed, warmup, nil); err != nil {
		return cell{}, err
	}
	if err := x.stretch(x.viewed, warmup, nil); err != nil {
		return cell{}, err
	}
	done := 0
	for k := range alternation {
		rounds := timed*(k+1)/alternation - done
		done += rounds
		for way, call := range []func() error{x.viewed, x.packed} {
			if err := mpi.Barrier(s.world); err != nil {
				return cell{}, err
			}
			from := watch
			if way == 1 {
				from = nil
			}
			start := s.now()
			if err := x.stretch(call, rounds, from); err != nil {
				return cell{}, err
			}
			took[way] += s.now() - start
		}
	}
	perMessage := 1e6 / float64(2*timed)
	return cell{value: took[0] * perMessage, baseline: took[1] * perMessage,
		tails: s.tails(oneWayMicroseconds)}, nil
}

// stretch is some rounds in one way. A stopwatch, if there is one, keeps their times.
func (x *columnEnds) stretch(call func() error, rounds int, watch *stopwatch) error {
	if watch != nil {
		watch.lap = watch.now()
	}
	for range rounds {
		if x.s.refills() {
			x.fill()
		}
		if err := call(); err != nil {
			return err
		}
		if watch != nil {
			watch.split()
		}
		if x.s.Validate {
			x.compare()
		}
	}
	return nil
}

func (x *columnEnds) viewed() error {
	if x.begins {
		if err := mpi.SendView(x.s.world, x.send, x.other, pingTag); err != nil {
			return err
		}
	}
	if _, err := mpi.RecvView(x.s.world, x.recv, x.other, pingTag); err != nil {
		return err
	}
	if !x.begins {
		return mpi.SendView(x.s.world, x.send, x.other, pingTag)
	}
	return nil
}

// packed is viewed as programs do it without views.
func (x *columnEnds) packed() error {
	if x.begins {
		if err := x.packAndSend(); err != nil {
			return err
		}
	}
	if _, err := mpi.Recv(x.s.world, x.recvBuf, x.other, pingTag); err != nil {
		return err
	}
	for i, v := range x.recvBuf {
		x.in[i*rowLength+2] = v
	}
	if !x.begins {
		return x.packAndSend()
	}
	return nil
}

func (x *columnEnds) packAndSend() error {
	for i := range x.sendBuf {
		x.sendBuf[i] = x.out[i*rowLength+1]
	}
	return mpi.Send(x.s.world, x.sendBuf, x.other, pingTag)
}

// fill writes the column anew.
func (x *columnEnds) fill() {
	x.sequences++
	for i := range x.sendBuf {
		x.out[i*rowLength+1] = columnValue(x.s.world.Rank(), x.sequences, i)
	}
}

// columnValue is an element of a column of a rank's message.
func columnValue(rank, sequence, i int) float64 {
	return float64((rank+1)*1_000_003 + sequence*257 + i)
}

// compare notes the first element that is not what the other rank has sent.
func (x *columnEnds) compare() {
	for i := range x.recvBuf {
		want := columnValue(x.other, x.sequences, i)
		if got := x.in[i*rowLength+2]; got != want && x.s.wrong == nil {
			x.s.wrong = fmt.Errorf("%w: %s, %d bytes: rank %d got message %d of rank %d with %v in "+
				"place of %v as element %d", ErrInvalid, x.s.Name, len(x.recvBuf)*wordSize,
				x.s.world.Rank(), x.sequences, x.other, got, want, i)
		}
	}
	clear(x.in)
}

func init() {
	All = append(All, &Benchmark{Name: "strided", Short: "time of a column, as a view and packed by hand",
		title: "Strided Latency", kind: packings, cell: strided, Ranks: 2, Start: 2})
}
