package tracereport

import (
	"bytes"
	"image"
	"image/color"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/weft-mpi/weft/internal/perfetto"
)

// file makes a trace of two ranks, step by step.
type file struct{ b []byte }

func (f *file) add(p *perfetto.Packet) { f.b = p.Append(f.b) }

// rank declares a rank with one goroutine, whose track is its number.
func (f *file) rank(sequence uint32, name string) {
	f.add(&perfetto.Packet{Sequence: sequence, Flags: perfetto.Cleared, Track: &perfetto.Track{
		ID: uint64(sequence) * 10, Process: &perfetto.Process{PID: int32(sequence), Name: name}}})
	f.add(&perfetto.Packet{Sequence: sequence, Track: &perfetto.Track{ID: uint64(sequence),
		Parent: uint64(sequence) * 10},
		Interned: &perfetto.Interned{
			Names: []perfetto.Name{{ID: 1, Text: "Recv"}, {ID: 2, Text: "send"}, {ID: 3, Text: "receive"},
				{ID: 4, Text: "asleep"}, {ID: 5, Text: "assemble\n"}, {ID: 6, Text: "7 events after this are left out"}},
			Categories:  []perfetto.Name{{ID: 1, Text: "mpi"}, {ID: 2, Text: "region"}},
			Annotations: []perfetto.Name{{ID: 1, Text: "peer"}, {ID: 2, Text: "bytes"}}}})
}

func (f *file) slice(sequence uint32, name, category, begin, end uint64, within ...func()) {
	f.add(&perfetto.Packet{Sequence: sequence, Time: begin, Event: &perfetto.Event{Type: perfetto.SliceBegin,
		Track: uint64(sequence), Name: name, Category: category}})
	for _, do := range within {
		do()
	}
	f.add(&perfetto.Packet{Sequence: sequence, Time: end, Event: &perfetto.Event{Type: perfetto.SliceEnd,
		Track: uint64(sequence)}})
}

func (f *file) message(sequence uint32, name, at uint64, peer, bytes int64, flows, ends []uint64) {
	f.add(&perfetto.Packet{Sequence: sequence, Time: at, Event: &perfetto.Event{Type: perfetto.Instant,
		Track: uint64(sequence), Name: name, Flows: flows, Ends: ends, Annotations: []perfetto.Annotation{
			{Name: 1, Number: &peer}, {Name: 2, Number: &bytes}}}})
}

// example has a message that rank 1 waits for, and one that it comes late for.
func example() []byte {
	f := &file{}
	f.rank(1, "rank 0 on alpha")
	f.message(1, 2, 1_000_500_000, 1, 80_000, []uint64{7}, nil)
	f.message(1, 2, 1_000_600_000, 1, 20, []uint64{8}, nil)
	f.rank(2, "rank 1 on beta\x1b[2J")
	f.slice(2, 5, 2, 1_000_000_000, 1_002_000_000, func() {
		f.slice(2, 1, 1, 1_000_100_000, 1_000_700_000,
			func() { f.slice(2, 4, 1, 1_000_200_000, 1_000_600_000) },
			func() { f.message(2, 3, 1_000_650_000, 0, 80_000, nil, []uint64{7}) })
		f.slice(2, 1, 1, 1_001_600_000, 1_001_700_000,
			func() { f.message(2, 3, 1_001_650_000, 0, 20, nil, []uint64{8}) })
	})
	f.add(&perfetto.Packet{Sequence: 2, Time: 1_002_000_000, Event: &perfetto.Event{Type: perfetto.Instant,
		Track: 20, Name: 6}})
	return f.b
}

func TestWriteText(t *testing.T) {
	j, err := Read(bytes.NewReader(example()))
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, j.WriteText(&b))
	require.Equal(t, `2 ranks on 2 hosts, 2ms, 2 messages of 80K bytes

  CALL  COUNT   TIME  SHARE  ASLEEP
  Recv      2  700µs    18%   400µs

      REGION  COUNT  TIME  SHARE  ASLEEP
  assemble\n      1   2ms    50%      0s

  RANK         HOST  IN CALLS  ASLEEP  SENT  RECEIVED  LATE SENDERS  WAITED  LATE RECEIVERS  LAY
     0        alpha        0%      0%   80K         0             0      0s               0   0s
     1  beta\x1b[2J       35%     20%     0       80K             1   400µs               1  1ms

imbalance: a rank is outside of calls for 1.65ms on average, rank 0 for 2ms, 21% more

  BYTES FROM\TO  0    1
              0  0  80K
              1  0    0

rank 1: 7 events after this are left out
`, b.String())
}

func TestWritePlot(t *testing.T) {
	j, err := Read(bytes.NewReader(example()))
	require.NoError(t, err)
	for name, begins := range map[string]string{"a.svg": "<?xml", "a.png": "\x89PNG", "a.html": "<!DOCTYPE html>"} {
		var b bytes.Buffer
		require.NoError(t, j.WritePlot(&b, name))
		require.True(t, strings.HasPrefix(b.String(), begins), name)
		require.NotContains(t, b.String(), "\x1b[2J")
	}
	require.Error(t, j.WritePlot(&bytes.Buffer{}, "a.gif"))
}

// The timeline has as much of each moment as it took.
func TestColumns(t *testing.T) {
	j, err := Read(bytes.NewReader(example()))
	require.NoError(t, err)
	var called, slept float64
	for _, c := range j.columns(j.Ranks[1]) {
		called, slept = called+c.inCalls, slept+c.asleep
	}
	require.InDelta(t, 0.35*bins, called, 0.01)
	require.InDelta(t, 0.20*bins, slept, 0.01)
}

// A file may say anything.
func FuzzRead(f *testing.F) {
	f.Add(example())
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b strings.Builder
		require.NoError(t, j.WriteText(&b))
		for _, c := range b.String() {
			require.True(t, c == '\n' || c >= ' ', "a control character comes through")
		}
	})
}

// Whatever a trace says, it can be drawn. Coverage of the drawing library would slow the fuzzer down a
// hundredfold, so what it draws goes nowhere.
func FuzzWritePlot(f *testing.F) {
	f.Add(example())
	absent := &file{} // bytes for a rank that has left no events
	absent.rank(1, "rank 3 on alpha")
	absent.message(1, 2, 1_000_500_000, 5, 1<<62, []uint64{7}, nil)
	absent.message(1, 2, 1_000_500_000, 5, 1<<62, []uint64{8}, nil)
	absent.message(1, 2, 1<<62, 5, 1<<62, []uint64{9}, nil)
	f.Add(absent.b)
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i := range panels {
			j.panel(i, draw.NewCanvas(nowhere{}, 24*vg.Centimeter, 11*vg.Centimeter))
		}
	})
}

// nowhere is a canvas that takes everything.
type nowhere struct{ vg.Canvas }

func (nowhere) SetLineWidth(vg.Length)                 {}
func (nowhere) SetLineDash([]vg.Length, vg.Length)     {}
func (nowhere) SetColor(color.Color)                   {}
func (nowhere) Rotate(float64)                         {}
func (nowhere) Translate(vg.Point)                     {}
func (nowhere) Scale(float64, float64)                 {}
func (nowhere) Push()                                  {}
func (nowhere) Pop()                                   {}
func (nowhere) Stroke(vg.Path)                         {}
func (nowhere) Fill(vg.Path)                           {}
func (nowhere) FillString(font.Face, vg.Point, string) {}
func (nowhere) DrawImage(vg.Rectangle, image.Image)    {}

// Rank 0 is in the first row, which is the highest, and ranks that left no events have a row too. Of many
// ranks, neighbors share one.
func TestCells(t *testing.T) {
	j := &Job{Ranks: []*Rank{{Number: 4}, {Number: 0}}, Bytes: map[[2]int]int64{{0, 4}: 10, {4, 7}: 100, {0, 0}: 0}}
	m := j.cells()
	require.Equal(t, []int{0, 4, 7}, m.first)
	require.Equal(t, map[[2]int]int64{{0, 1}: 10, {1, 2}: 100}, m.bytes)
	require.Equal(t, 2.0, m.height(0))
	require.Equal(t, 0.5, m.shade(10))
	require.Equal(t, 1.0, m.shade(100))

	j = &Job{Bytes: map[[2]int]int64{}}
	for i := range 2 * maxCells {
		j.Ranks = append(j.Ranks, &Rank{Number: i})
		j.Bytes[[2]int{i, 0}] = math.MaxInt64
	}
	m = j.cells()
	require.Len(t, m.first, maxCells)
	require.Equal(t, 2, m.first[1])
	require.Equal(t, int64(math.MaxInt64), m.bytes[[2]int{1, 0}])
}

// A small matrix has its figures in it.
func TestWritePlot_Figures(t *testing.T) {
	j, err := Read(bytes.NewReader(example()))
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, j.WritePlot(&b, "a.svg"))
	require.Contains(t, b.String(), ">80K</text>")
}

// Calls on windows are counted by name, as one with the calls that they consist of, and their bytes go where
// they were put and come from where they were got.
func TestRead_Windows(t *testing.T) {
	f := &file{}
	f.rank(1, "rank 0 on alpha")
	f.add(&perfetto.Packet{Sequence: 1, Time: 1_000_000_000, Event: &perfetto.Event{Type: perfetto.Counter, Track: 1},
		Interned: &perfetto.Interned{Names: []perfetto.Name{{ID: 11, Text: "Win.Put"}, {ID: 12, Text: "Win.Get"},
			{ID: 13, Text: "Win.FetchAndOp"}, {ID: 14, Text: "Win.Fence"}, {ID: 15, Text: "Barrier"}}}})
	at := uint64(1_000_000_000)
	operation := func(name uint64, peer, bytes int64) {
		f.add(&perfetto.Packet{Sequence: 1, Time: at, Event: &perfetto.Event{Type: perfetto.SliceBegin, Track: 1,
			Name: name, Category: 1, Annotations: []perfetto.Annotation{{Name: 1, Number: &peer}, {Name: 2, Number: &bytes}}}})
		at += 1000
		f.add(&perfetto.Packet{Sequence: 1, Time: at, Event: &perfetto.Event{Type: perfetto.SliceEnd, Track: 1}})
	}
	operation(11, 1, 500)
	operation(11, -3, 500) // to no rank
	operation(12, 1, 70)
	operation(13, 1, 8)
	f.slice(1, 14, 1, at, at+9000, func() {
		f.slice(1, 15, 1, at+1000, at+8000, func() { f.slice(1, 4, 1, at+2000, at+7000) })
	})
	j, err := Read(bytes.NewReader(f.b))
	require.NoError(t, err)
	require.Equal(t, map[string]*Call{"Win.Put": {2, 2000, 0}, "Win.Get": {1, 1000, 0},
		"Win.FetchAndOp": {1, 1000, 0}, "Win.Fence": {1, 9000, 5000}}, j.Calls)
	require.Equal(t, map[[2]int]int64{{0, 1}: 508, {1, 0}: 78}, j.Bytes)
	require.EqualValues(t, 13000, j.Ranks[0].InCalls)
	var b strings.Builder
	require.NoError(t, j.WriteText(&b))
	require.Contains(t, b.String(), "0 messages of 0 bytes; 508 bytes put into windows, 78 got\n")
}
