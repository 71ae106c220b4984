package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weft-mpi/weft/mpi"
)

// packings is the table that compares messages of views with messages that the program packs.
var packings = &tableSpec{
	columns: tableOf("us", sizeColumn,
		column{name: "view", heading: "View(us)", unit: "us", width: 20, of: valueOf},
		column{name: "packed", heading: "Packed(us)", unit: "us", width: 20,
			of: func(c *measurement) float64 { return c.baseline }},
		column{name: "ratio", heading: "View/Packed", width: 20,
			of: func(c *measurement) float64 { return c.value / c.baseline }}),
	datatype: "MPI_DOUBLE", element: wordSize, min: wordSize, max: 4 << 20, axes: latencyAxes, tails: true,
	counts: counts{10000, 100, 1000, 10},
}

const (
	rowLength   = 8  // columns of the matrix whose elements are sent
	alternation = 20 // stretches in which the two ways take turns, so that a disturbance affects both
)

// shape is a selection of elements of a matrix with rowLength columns and as many rows as selected elements:
// as a view, and as the loops of a program without views. Some shapes need a list of places.
type shape struct {
	name   string
	places func(count int) []int
	view   func(matrix []float64, at []int, count int) mpi.View[float64]
	pack   func(buf, matrix []float64, at []int)
	unpack func(matrix, buf []float64, at []int)
}

var shapes = []shape{
	{name: "column",
		view: func(m []float64, _ []int, count int) mpi.View[float64] {
			return mpi.Strided(m[1:], count, 1, rowLength)
		},
		pack: func(buf, m []float64, _ []int) {
			for i := range buf {
				buf[i] = m[i*rowLength+1]
			}
		},
		unpack: func(m, buf []float64, _ []int) {
			for i, v := range buf {
				m[i*rowLength+1] = v
			}
		}},
	{name: "block", // of planes of two rows
		view: func(m []float64, _ []int, count int) mpi.View[float64] {
			planes, rows, width := blockOf(count)
			return mpi.Sub(m, []int{planes, 4, rowLength}, []int{0, 1, 2}, []int{planes, rows, width})
		},
		pack: func(buf, m []float64, _ []int) {
			planes, rows, width := blockOf(len(buf))
			for p := range planes {
				for r := range rows {
					copy(buf[(p*rows+r)*width:][:width], m[(p*4+1+r)*rowLength+2:])
				}
			}
		},
		unpack: func(m, buf []float64, _ []int) {
			planes, rows, width := blockOf(len(buf))
			for p := range planes {
				for r := range rows {
					copy(m[(p*4+1+r)*rowLength+2:], buf[(p*rows+r)*width:][:width])
				}
			}
		}},
	{name: "indexed", places: ascending,
		view: func(m []float64, at []int, _ int) mpi.View[float64] { return mpi.Indexed(m, at, nil) },
		pack: packPlaces, unpack: unpackPlaces},
	{name: "scattered", places: shuffled,
		view: func(m []float64, at []int, _ int) mpi.View[float64] { return mpi.Indexed(m, at, nil) },
		pack: packPlaces, unpack: unpackPlaces},
	{name: "nested", places: shuffled, // elements of a column
		view: func(m []float64, at []int, count int) mpi.View[float64] {
			return mpi.Strided(m, 2*count, 1, rowLength/2).Indexed(at, nil)
		},
		pack: func(buf, m []float64, at []int) {
			for i := range buf {
				buf[i] = m[at[i]*(rowLength/2)]
			}
		},
		unpack: func(m, buf []float64, at []int) {
			for i, v := range buf {
				m[at[i]*(rowLength/2)] = v
			}
		}},
}

// blockOf returns the planes, rows per plane and elements per row of a block of count elements.
func blockOf(count int) (planes, rows, width int) {
	switch {
	case count%8 == 0:
		return count / 8, 2, 4
	case count <= 4:
		return 1, 1, count
	}
	return count, 1, 1
}

// ascending returns the places of two elements of each four.
func ascending(count int) []int {
	at := make([]int, count)
	for i := range at {
		at[i] = 2*i + i%2
	}
	return at
}

// shuffled returns these places in random order.
func shuffled(count int) []int {
	at := ascending(count)
	rand.New(rand.NewPCG(1, uint64(count))).Shuffle(count, func(i, j int) { at[i], at[j] = at[j], at[i] })
	return at
}

func packPlaces(buf, m []float64, at []int) {
	for i := range buf {
		buf[i] = m[at[i]]
	}
}

func unpackPlaces(m, buf []float64, at []int) {
	for i, v := range buf {
		m[at[i]] = v
	}
}

// viewEnds are the sources and destinations of the messages.
type viewEnds struct {
	*shape
	s         *session
	at        []int
	out, in   []float64 // matrices
	send      mpi.View[float64]
	recv      mpi.View[float64]
	sendBuf   []float64
	recvBuf   []float64
	other     int
	begins    bool
	sequences int
	win       *mpi.Win[float64] // of the calls on windows
}

// viewCall is a call that moves a message, in both ways.
type viewCall struct {
	name           string
	viewed, packed func(x *viewEnds) error
	messages       int  // one after another in a call
	onWindow, gets bool // only rank 0 calls it; it reads
}

var viewCalls = []viewCall{
	{name: "send", messages: 2, viewed: (*viewEnds).sendViews, packed: (*viewEnds).sendPacked},
	{name: "isend", messages: 2, viewed: (*viewEnds).isendViews, packed: (*viewEnds).isendPacked},
	{name: "sendrecv", messages: 1, viewed: (*viewEnds).exchangeViews, packed: (*viewEnds).exchangePacked},
	{name: "put", messages: 1, onWindow: true,
		viewed: (*viewEnds).putView, packed: (*viewEnds).putPacked},
	{name: "get", messages: 1, onWindow: true, gets: true,
		viewed: (*viewEnds).getView, packed: (*viewEnds).getPacked},
}

// Shapes and Calls are the values of Options.Shape and Options.Call.
var (
	Shapes = namesOf(shapes, func(s shape) string { return s.name })
	Calls  = namesOf(viewCalls, func(c viewCall) string { return c.name })
)

func namesOf[E any](list []E, name func(E) string) []string {
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = name(e)
	}
	return names
}

// checkViews refuses an unknown shape or call.
func (o *Options) checkViews() error {
	if o.Shape != "" && !slices.Contains(Shapes, o.Shape) {
		return optionErrorf("no shape is called %q; there are %s", o.Shape, strings.Join(Shapes, ", "))
	}
	if o.Call != "" && !slices.Contains(Calls, o.Call) {
		return optionErrorf("no call of views is called %q; there are %s", o.Call, strings.Join(Calls, ", "))
	}
	return nil
}

// strided moves elements of a matrix back and forth: as views, and packed and unpacked by hand in plain
// loops.
func strided(s *session, n int) (c measurement, err error) {
	count := n / wordSize
	x := &viewEnds{s: s, shape: &shapes[max(slices.Index(Shapes, s.Shape), 0)],
		out: make([]float64, count*rowLength+rowLength*4), in: make([]float64, count*rowLength+rowLength*4),
		sendBuf: make([]float64, count), recvBuf: make([]float64, count)}
	if x.places != nil {
		x.at = x.places(count)
	}
	x.send, x.recv = x.view(x.out, x.at, count), x.view(x.in, x.at, count)
	x.other, x.begins = s.partner()
	call := &viewCalls[max(slices.Index(Calls, s.Call), 0)]
	if call.onWindow {
		if x.win, err = mpi.WinAllocate[float64](s.world, count); err != nil {
			return measurement{}, err
		}
		if err := x.win.LockAll(); err != nil {
			return measurement{}, err
		}
	}
	if c, err = x.compareWays(call, n); err != nil || !call.onWindow {
		return c, err
	}
	if err := x.win.UnlockAll(); err != nil {
		return measurement{}, err
	}
	return c, x.win.Free()
}

// compareWays times both ways of a call.
func (x *viewEnds) compareWays(call *viewCall, n int) (measurement, error) {
	s := x.s
	timed, warmup := s.iterations(n)
	watch := s.stopwatch()
	took := [2]float64{}
	for _, way := range []func(*viewEnds) error{call.packed, call.viewed} {
		if err := x.stretch(call, way, warmup, nil); err != nil {
			return measurement{}, err
		}
	}
	done := 0
	for k := range alternation {
		rounds := timed*(k+1)/alternation - done
		done += rounds
		for i, way := range []func(*viewEnds) error{call.viewed, call.packed} {
			if err := mpi.Barrier(s.world); err != nil {
				return measurement{}, err
			}
			from := watch
			if i == 1 {
				from = nil
			}
			start := s.now()
			if err := x.stretch(call, way, rounds, from); err != nil {
				return measurement{}, err
			}
			took[i] += s.now() - start
		}
	}
	perMessage := 1e6 / float64(call.messages*timed)
	return measurement{value: took[0] * perMessage, baseline: took[1] * perMessage,
		tails: s.tails(func(seconds float64) float64 { return seconds * 1e6 / float64(call.messages) })}, nil
}

// stretch runs rounds in one way, timed by a stopwatch if watch is not nil.
func (x *viewEnds) stretch(call *viewCall, way func(*viewEnds) error, rounds int, watch *stopwatch) error {
	if watch != nil {
		watch.lap = watch.now()
	}
	for range rounds {
		if x.s.refills() {
			if err := x.fill(call); err != nil {
				return err
			}
		}
		if !call.onWindow || x.begins {
			if err := way(x); err != nil {
				return err
			}
		}
		if watch != nil {
			watch.split()
		}
		if x.s.Validate {
			if err := x.compare(call); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *viewEnds) sendViews() error {
	return x.inTurn(func() error { return mpi.SendView(x.s.world, x.send, x.other, pingTag) },
		func() error {
			_, err := mpi.RecvView(x.s.world, x.recv, x.other, pingTag)
			return err
		})
}

// sendPacked is sendViews in a program without views.
func (x *viewEnds) sendPacked() error {
	return x.inTurn(func() error {
		x.pack(x.sendBuf, x.out, x.at)
		return mpi.Send(x.s.world, x.sendBuf, x.other, pingTag)
	}, func() error {
		_, err := mpi.Recv(x.s.world, x.recvBuf, x.other, pingTag)
		return x.unpacked(err)
	})
}

// isendViews posts the receive before the message comes.
func (x *viewEnds) isendViews() error {
	r, err := mpi.IrecvView(x.s.world, x.recv, x.other, pingTag)
	if err != nil {
		return err
	}
	return x.inTurn(func() error { return ended(mpi.IsendView(x.s.world, x.send, x.other, pingTag)) },
		func() error { return ended(r, nil) })
}

func (x *viewEnds) isendPacked() error {
	r, err := mpi.Irecv(x.s.world, x.recvBuf, x.other, pingTag)
	if err != nil {
		return err
	}
	return x.inTurn(func() error {
		x.pack(x.sendBuf, x.out, x.at)
		return ended(mpi.Isend(x.s.world, x.sendBuf, x.other, pingTag))
	}, func() error { return x.unpacked(ended(r, nil)) })
}

// inTurn makes this rank send before it receives, or after.
func (x *viewEnds) inTurn(send, receive func() error) error {
	if x.begins {
		if err := send(); err != nil {
			return err
		}
	}
	if err := receive(); err != nil || x.begins {
		return err
	}
	return send()
}

// ended waits for a message that has begun.
func ended(r mpi.Request, err error) error {
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

// unpacked unpacks the received elements.
func (x *viewEnds) unpacked(err error) error {
	if err == nil {
		x.unpack(x.in, x.recvBuf, x.at)
	}
	return err
}

// flushed ends an operation on the window.
func (x *viewEnds) flushed(err error) error {
	if err == nil {
		err = x.win.Flush(x.other)
	}
	return err
}

func (x *viewEnds) exchangeViews() error {
	_, err := mpi.SendrecvView(x.s.world, x.send, x.other, pingTag, x.recv, x.other, pingTag)
	return err
}

func (x *viewEnds) exchangePacked() error {
	x.pack(x.sendBuf, x.out, x.at)
	_, err := mpi.Sendrecv(x.s.world, x.sendBuf, x.other, pingTag, x.recvBuf, x.other, pingTag)
	return x.unpacked(err)
}

func (x *viewEnds) putView() error {
	return x.flushed(x.win.PutView(x.send, x.other, x.win.At(0, x.send.Len())))
}

func (x *viewEnds) putPacked() error {
	x.pack(x.sendBuf, x.out, x.at)
	return x.flushed(x.win.Put(x.sendBuf, x.other, 0))
}

func (x *viewEnds) getView() error {
	return x.flushed(x.win.GetView(x.recv, x.other, x.win.At(0, x.recv.Len())))
}

func (x *viewEnds) getPacked() error {
	return x.unpacked(x.flushed(x.win.Get(x.recvBuf, x.other, 0)))
}

// fill rewrites the source.
func (x *viewEnds) fill(call *viewCall) error {
	x.sequences++
	for i := range x.sendBuf {
		x.sendBuf[i] = elementValue(x.s.world.Rank(), x.sequences, i)
	}
	x.unpack(x.out, x.sendBuf, x.at)
	if !call.onWindow {
		return nil
	}
	copy(x.win.Local(), x.sendBuf)
	return mpi.Barrier(x.s.world)
}

// elementValue returns an element of a rank's message.
func elementValue(rank, sequence, i int) float64 {
	return float64((rank+1)*1_000_003 + sequence*257 + i)
}

// compare records the first received element that differs from what the other rank has sent.
func (x *viewEnds) compare(call *viewCall) error {
	if call.onWindow {
		if err := mpi.Barrier(x.s.world); err != nil {
			return err
		}
	}
	got := x.recvBuf
	switch {
	case call.onWindow && x.begins != call.gets:
		got = nil
	case call.onWindow && !call.gets:
		got = x.win.Local()
	default:
		x.pack(got, x.in, x.at)
	}
	for i, v := range got {
		want := elementValue(x.other, x.sequences, i)
		if v != want && x.s.wrong == nil {
			x.s.wrong = fmt.Errorf("%w: %s, %d bytes: rank %d got message %d of rank %d with %v in "+
				"place of %v as element %d", ErrInvalid, x.s.Name, len(got)*wordSize,
				x.s.world.Rank(), x.sequences, x.other, v, want, i)
		}
	}
	clear(x.in)
	if call.onWindow {
		return mpi.Barrier(x.s.world)
	}
	return nil
}

func init() {
	All = append(All, &Benchmark{Name: "strided",
		Short: "time of scattered elements, as a view and packed by hand", title: "Strided Latency",
		spec: packings, measureSize: strided, Ranks: 2, Start: 2, Strided: true,
		preamble: func(s *session) string { return "# Shape: " + s.Shape + ", Call: " + s.Call }})
}
