package tracereport

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
