package trace

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
)

func decoded(t *testing.T, b *Buffer, h Head) (*Rank, []Record) {
	data, err := b.Encode(h, 64<<20)
	require.NoError(t, err)
	r, err := Decode(data)
	require.NoError(t, err)
	return r, slices.Collect(r.Records())
}

func TestBuffer_HandsOverWhatWasAdded(t *testing.T) {
	b := NewBuffer(1<<16, time.Now())
	b.AddAt(1000, CallBegin, 3, 0, 5, 77, 1<<40)
	b.AddAt(900, Sent, 0, 1<<31, -1, -2, 8) // another goroutine, which had the time earlier
	b.Add(RegionBegin, 0, 0, b.Name("assemble"), 0, 0)
	require.Equal(t, b.Name("assemble"), b.Name("assemble"))
	r, list := decoded(t, b, Head{Rank: 2, Size: 3, Offsets: []Offset{{1, -2, 3}}, Comms: map[uint32]string{4: "halo"}})
	require.Equal(t, []string{"assemble"}, r.Regions)
	require.Equal(t, "halo", r.Comms[4])
	require.Equal(t, Offset{1, -2, 3}, r.Offsets[0])
	require.Len(t, list, 3)
	list[0], list[1] = list[1], list[0] // they are in the order of their times
	g := list[0].Goroutine
	require.NotZero(t, g)
	require.Equal(t, Record{Time: 1000, Bytes: 1 << 40, Tag: 77, Peer: 5, Goroutine: g, Kind: CallBegin, What: 3},
		list[0])
	require.Equal(t, Record{Time: 900, Bytes: 8, Context: 1 << 31, Tag: -2, Peer: -1, Goroutine: g, Kind: Sent},
		list[1])
	require.Zero(t, r.Omitted)
}

// A full buffer keeps the first records and counts the others, whoever writes them.
func TestBuffer_CountsWhatHasNoRoom(t *testing.T) {
	b := NewBuffer(100*entryBytes, time.Now())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				b.Add(CallEnd, 0, 0, 0, 0, 0)
			}
		})
	}
	all.Wait()
	r, list := decoded(t, b, Head{})
	require.Len(t, list, 100)
	require.EqualValues(t, 100, r.Omitted)
	data, err := b.Encode(Head{}, maxHead+300)
	require.NoError(t, err)
	short, err := Decode(data)
	require.NoError(t, err)
	kept := len(slices.Collect(short.Records()))
	require.Less(t, kept, 100)
	require.EqualValues(t, 200-kept, short.Omitted, "what is not handed over is left out, too")
}

func TestBuffer_BoundsItsNames(t *testing.T) {
	b := NewBuffer(0, time.Now())
	for i := range 2 * maxNames {
		require.Less(t, b.Name(string(make([]byte, i))), maxNames)
	}
	r, _ := decoded(t, b, Head{})
	require.Len(t, r.Regions, maxNames)
	require.Equal(t, "other regions", r.Regions[maxNames-1])
}

func TestBuffer_AllocatesNothing(t *testing.T) {
	b := NewBuffer(1<<20, time.Now())
	require.Zero(t, testing.AllocsPerRun(1000, func() { b.Add(Sent, 0, 0, 1, 2, 3) }))
}

// A rank may hand over anything.
func FuzzDecode(f *testing.F) {
	b := NewBuffer(1<<10, time.Now())
	b.Add(CallBegin, 3, 0, 5, 77, 8)
	b.Add(Matched, 0, 9, 5, 77, 8)
	data, err := b.Encode(Head{Rank: 1, Size: 2}, 64<<20)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Decode(data)
		if err != nil {
			return
		}
		for e := range r.Records() {
			require.True(t, e.Kind > 0 && e.Kind < kinds && e.Time >= 0)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	buffer := NewBuffer(64<<20, time.Now())
	for b.Loop() {
		buffer.Add(Sent, 0, 0, 1, 2, 3)
		if buffer.next.Load() == uint64(len(buffer.entries)) {
			buffer.next.Store(0)
		}
	}
}

// A call that ends is a record of its beginning and one of its end, around what was added within it; so is one
// that has taken a message.
func TestBuffer_ExpandsCalls(t *testing.T) {
	b := NewBuffer(1<<16, time.Now())
	b.AddAt(b.Now(), RegionBegin, 0, 0, 0, 0, 0)
	first := b.Stamp()
	b.Add(Sleeps, 7, 0, 0, 0, 0)
	b.Add(Slept, 0, 0, 0, 0, 1)
	b.Add(Sent, 0, 4, 1, 2, 3)
	b.AddCall(first, 5, 1, 2, 3)
	b.AddReceive(b.Stamp(), 6, 4, 1, 2, 9)
	b.Add(Sleeps, 7, 0, 1, 2, 3) // and never wakes
	_, list := decoded(t, b, Head{})
	var kinds []Kind
	for i, r := range list {
		kinds = append(kinds, r.Kind)
		require.True(t, i == 0 || r.Time >= list[i-1].Time)
	}
	require.Equal(t, []Kind{RegionBegin, CallBegin, Slept, Sent, CallEnd, CallBegin, Matched, CallEnd, CallBegin}, kinds)
	require.Equal(t, []uint8{5, 6, 7}, []uint8{list[1].What, list[5].What, list[8].What})
	require.Equal(t, Record{Time: list[6].Time, Bytes: 9, Context: 4, Tag: 2, Peer: 1, Goroutine: list[6].Goroutine,
		Kind: Matched}, list[6])
}

// A sleep that never ends tells of its call only where nothing else does.
func TestBuffer_CallsThatNeverEnd(t *testing.T) {
	b := NewBuffer(1<<16, time.Now())
	b.Add(CallBegin, 5, 0, 0, 0, 0)
	b.Add(CallEnd, 0, 0, 0, 0, 0)
	b.Add(CallBegin, 6, 0, 0, 0, 0)
	b.Add(Sleeps, 7, 0, 0, 0, 0)
	_, list := decoded(t, b, Head{})
	require.Len(t, list, 3)
	require.EqualValues(t, 6, list[2].What)
}

// Times by the processor's counter are those by the clock.
func TestBuffer_TicksAreTimes(t *testing.T) {
	if !sys.SteadyTicks() {
		t.Skip("the counter of this processor is not the system's clock")
	}
	began := time.Now()
	b := NewBuffer(1<<16, began)
	b.UseTicks()
	var within [][2]int64
	first := b.Now()
	begun := b.Stamp()
	second := b.Now()
	for range 100 {
		before := b.Now()
		b.Add(Phase, 0, 0, 0, 0, 0)
		within = append(within, [2]int64{before, b.Now()})
		time.Sleep(time.Millisecond)
	}
	_, list := decoded(t, b, Head{})
	for i, r := range list {
		const rough = 2000 // ns
		require.True(t, r.Time > within[i][0]-rough && r.Time < within[i][1]+rough, "%v %v", r, within[i])
	}
	third := b.Now()
	took := int64(b.Duration(b.Stamp() - begun))
	fourth := b.Now()
	rough := (fourth - first) / 100 // of what the ticks are told apart by
	require.True(t, took > third-second-rough && took < fourth-first+rough, "%d: %d to %d", took, third-second,
		fourth-first)
}

// What a message of a blocking send and receive costs, at both ends.
func BenchmarkMessage(b *testing.B) {
	buffer := NewBuffer(1<<20, time.Now())
	if sys.SteadyTicks() {
		buffer.UseTicks()
	}
	for b.Loop() {
		sent := buffer.Stamp()
		buffer.Add(Sent, 0, 0, 1, 2, 3)
		buffer.AddCall(sent, 0, 1, 2, 3)
		received := buffer.Stamp()
		buffer.AddReceive(received, 3, 0, 1, 2, 3)
		if buffer.next.Load() >= uint64(len(buffer.entries)) {
			buffer.next.Store(0)
		}
	}
}
