package tracefile

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/perfetto"
	"github.com/weft-mpi/weft/internal/perfetto/perfettotest"
	"github.com/weft-mpi/weft/internal/trace"
)

// rank is a rank whose clock shows that of the world, times speed, and ahead of it.
type rank struct {
	buffer *trace.Buffer
	head   trace.Head
	speed  float64
	ahead  int64
}

func newRank(number, size int, clock uint64, speed float64, ahead int64) *rank {
	return newRankOf(1<<20, number, size, clock, speed, ahead)
}

// newRankOf has a buffer of so many bytes.
func newRankOf(bytes, number, size int, clock uint64, speed float64, ahead int64) *rank {
	return &rank{buffer: trace.NewBuffer(bytes, time.Now()), speed: speed, ahead: ahead,
		head: trace.Head{Rank: number, Size: size, Clock: clock, Base: 1, Calls: []string{"Send", "Recv"}}}
}

func (r *rank) clock(t int64) int64 { return int64(float64(t)*r.speed) + r.ahead }

// add has the rank do something at a time of the world.
func (r *rank) add(t int64, k trace.Kind, peer, tag, bytes int) {
	r.buffer.AddAt(r.clock(t)-r.head.Epoch, k, 0, 0, peer, tag, bytes)
}

// compare compares the rank's clock with rank 0's, with an error.
func (r *rank) compare(t, wrong int64) {
	r.head.Offsets = append(r.head.Offsets, trace.Offset{At: r.clock(t), Ahead: t - r.clock(t) + wrong, Error: 1000})
}

func written(t *testing.T, ranks ...*rank) (Summary, *perfettotest.Trace) {
	var sources []Source
	for i, r := range ranks {
		data, err := r.buffer.Encode(r.head, 64<<20)
		require.NoError(t, err)
		decoded, err := trace.Decode(data)
		require.NoError(t, err)
		sources = append(sources, Source{decoded, string(rune('a' + i))})
	}
	var b bytes.Buffer
	sum, err := Write(&b, sources)
	require.NoError(t, err)
	return sum, perfettotest.Check(t, &b)
}

// exchange has one rank send and another receive.
func exchange(from, to *rank, at, takes int64, tag int) {
	from.add(at, trace.CallBegin, to.head.Rank, tag, 8)
	from.add(at+300, trace.Sent, to.head.Rank, tag, 8)
	from.add(at+400, trace.CallEnd, 0, 0, 0)
	to.add(at+takes-100, trace.CallBegin, from.head.Rank, tag, 8)
	to.add(at+takes, trace.Matched, from.head.Rank, tag, 8)
	to.add(at+takes+100, trace.CallEnd, 0, 0, 0)
}

// Clocks that are hours apart and run at different speeds are aligned by what was compared at the beginning
// and at the end, though the comparisons are less exact than messages are fast.
func TestWrite_AlignsClocks(t *testing.T) {
	const minute = int64(time.Minute)
	random := rand.New(rand.NewPCG(1, 2))
	ranks := []*rank{newRank(0, 4, 1, 1, 0), newRank(1, 4, 2, 1+50e-6, 1e13), newRank(2, 4, 3, 1-80e-6, 5e12),
		newRank(3, 4, 4, 1, 7e12)}
	for _, r := range ranks[1:] {
		r.head.Epoch = r.clock(0)
		r.compare(1000, random.Int64N(1000)-500)
		r.compare(minute, random.Int64N(1000)-500)
	}
	const messages = 1000
	at := int64(100_000)
	for i := range messages {
		from := random.IntN(4)
		to := (from + 1 + random.IntN(3)) % 4
		exchange(ranks[from], ranks[to], at, 700, i%5)
		at += minute / messages
	}
	sum, file := written(t, ranks...)
	require.Empty(t, sum.Rough)
	require.Equal(t, messages, sum.Messages)
	require.Equal(t, messages, file.Arrows)
	require.Zero(t, sum.Unpaired)
	var last uint64
	for _, e := range file.Events {
		last = max(last, e.Time)
	}
	require.InDelta(t, float64(minute), float64(last), 1e8, "the file is as long as the job")
}

// Without a comparison the clock of the day helps, and the file's summary says so; what does not fit even so
// has no arrow.
func TestWrite_WithoutComparedClocks(t *testing.T) {
	a, b := newRank(0, 2, 1, 1, 0), newRank(1, 2, 2, 1, 1e12)
	b.head.Epoch, b.head.Wall = 1e12, 5_000_000 // it is 5 ms wrong
	exchange(a, b, 1000, 700, 1)
	exchange(b, a, 3000, 700, 1)
	sum, file := written(t, a, b)
	require.Equal(t, []string{"b"}, sum.Rough)
	require.Equal(t, 2, sum.Messages, "messages show what the clock of the day does not")
	require.Equal(t, 2, file.Arrows)
}

// A message that has come before the sender says that it is sent is drawn from the time between.
func TestWrite_ReceivedBeforeTheSendIsTold(t *testing.T) {
	a, b := newRank(0, 2, 1, 1, 0), newRank(1, 2, 1, 1, 0)
	exchange(a, b, 1000, 200, 1)
	sum, file := written(t, a, b)
	require.Equal(t, 1, sum.Messages)
	require.Equal(t, 1, file.Arrows)
}

// An end of a message without the other one has no arrow, and so has all of an envelope of which a message was
// cancelled, since nobody knows which.
func TestWrite_WithoutTheOtherEnd(t *testing.T) {
	a, b := newRank(0, 2, 1, 1, 0), newRank(1, 2, 1, 1, 0)
	exchange(a, b, 1000, 700, 1)
	a.add(5000, trace.Sent, 1, 1, 8)
	for range 2 {
		a.add(6000, trace.Sent, 1, 2, 8)
	}
	a.add(6100, trace.Withdrawn, 1, 2, 0)
	b.add(7000, trace.Matched, 0, 2, 8)
	sum, file := written(t, a, b)
	require.Equal(t, 1, sum.Messages)
	require.Equal(t, 4, sum.Unpaired)
	require.Equal(t, 1, file.Arrows)
	require.Equal(t, 4, file.Count(perfetto.Instant, "send"))
}

// Regions may end in any order, or never; their slices nest all the same.
func TestWrite_RegionsThatDoNotNest(t *testing.T) {
	r := newRank(0, 1, 1, 1, 0)
	outer, inner := r.buffer.Name("outer"), r.buffer.Name("inner\n")
	r.add(10, trace.RegionBegin, outer, 0, 0)
	r.add(20, trace.RegionBegin, inner, 0, 0)
	r.add(30, trace.RegionEnd, outer, 0, 0)
	r.add(40, trace.RegionEnd, inner, 0, 0)
	r.add(50, trace.RegionBegin, outer, 0, 0)
	r.add(60, trace.CallBegin, 1, 2, 3)
	_, file := written(t, r)
	require.Equal(t, 2, file.Count(perfetto.SliceBegin, "outer"))
	require.Equal(t, 1, file.Count(perfetto.SliceBegin, `inner\n`))
}

// Where a rank has used several endpoints, messages, their communicators and counters say which, and it has a
// channel on each to the same peer.
func TestWrite_Endpoints(t *testing.T) {
	rows := contextid.OnEndpoint(1, 1)
	a, b := newRank(0, 2, 1, 1, 0), newRank(1, 2, 1, 1, 0)
	for _, r := range []*rank{a, b} {
		r.head.Several, r.head.Comms = true, map[uint32]string{0: "world", rows: "rows"}
	}
	for i, context := range []uint32{contextid.World, rows} {
		at := int64(1000 * (i + 1))
		a.buffer.AddAt(at, trace.Sent, 0, context, 1, 7, 8)
		b.buffer.AddAt(at+500, trace.Matched, 0, context, 0, 7, 8)
		a.buffer.AddAt(at+600, trace.Phase, 0, contextid.OnEndpoint(i, 0), 1, 0, 2)
	}
	_, file := written(t, a, b)
	var sent, tracks []string
	for _, e := range file.Events {
		if e.Name == "send" {
			sent = append(sent, fmt.Sprintf("%s on %d", e.Notes["communicator"].Text, *e.Notes["endpoint"].Number))
		}
	}
	require.Equal(t, []string{"world on 0", "rows@1 on 1"}, sent)
	for _, k := range file.Tracks {
		if k.Counter != 0 {
			tracks = append(tracks, k.Name)
		}
	}
	require.ElementsMatch(t, []string{"bytes sent on endpoint 0", "bytes sent on endpoint 1",
		"bytes received on endpoint 0", "bytes received on endpoint 1", "channels in phase 2"}, tracks)
	var channels int64
	for _, e := range file.Events {
		if k := file.Tracks[e.Track]; k.Name == "channels in phase 2" {
			channels = e.Value
		}
	}
	require.EqualValues(t, 2, channels)
}

// Whatever ranks hand over, the file keeps the rules.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Fuzz(func(t *testing.T, data []byte) {
		// Each input takes and clears new buffers. The events of a long one do not fit.
		a, b := newRankOf(2048, 0, 2, 1, 1, 0), newRankOf(2048, 1, 2, 2, 1, 0)
		at := int64(0)
		for i := 0; i+2 < len(data); i += 3 {
			r := []*rank{a, b}[data[i]&1]
			at += int64(data[i+1])
			r.add(at, trace.Kind(data[i]>>1%9+1), int(data[i+2]%3), 1, int(data[i+2]))
		}
		written(t, a, b)
	})
}
