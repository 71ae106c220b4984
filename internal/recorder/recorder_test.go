package recorder

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/contextid"
)

// raw is what an agent would have of a recorder.
func (r *Recorder) raw() []byte {
	return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(r.m)), partSize))
}

func dumpOf(t *testing.T, r *Recorder, rank int) string {
	var b strings.Builder
	require.NoError(t, Dump(&b, r.raw(), Origin{Rank: rank, Size: 2, Host: "node", PID: 7,
		At: time.Unix(1e9, 0)}))
	return b.String()
}

// comm is the communicator in the tests.
var comm = contextid.Numbered(1)

func TestDump_ShowsEventsInOrder(t *testing.T) {
	r := New()
	r.NameOperations([]string{"Barrier", "Bcast"})
	r.Note(Sent, comm, 1, 5, 8)
	r.Note(Posted, comm, -1, -1, 16)
	r.Note(Collective, contextid.Collective.In(comm), 1, 0, 24)
	r.Note(Sent, contextid.Collective.In(comm), 1, 9, 24)
	r.Note(Phase, 0, 1, 0, 2)
	r.Note(PeerLost, 0, 1, 0, 0)
	r.Note(Kind(200), 0, 1, 0, 0)
	lines := strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Equal(t, "weft events of rank 0 of 2, pid 7 on node, at 2001-09-09T01:46:40.000000000Z: "+
		"the last 7 of 7 records", lines[0])
	var texts []string
	for _, line := range lines[1:] {
		when, text, _ := strings.Cut(line, " ")
		_, err := time.Parse(timeFormat, when)
		require.NoError(t, err)
		texts = append(texts, text[2:])
	}
	require.Equal(t, []string{
		"sent to 1, tag 5, 8 bytes, communicator 1",
		"receive waits from any, tag any, 16 bytes, communicator 1",
		"begins Bcast, 24 bytes, communicator 1",
		"sent to 1, 24 bytes, communicator 1, of a collective",
		"sends in phase 2 to 1",
		"gave up on 1",
		"event of kind 200",
	}, texts)
}

// The ring keeps the latest events, and there are always stamps among them, so that each has a time.
func TestDump_OfAFullRing(t *testing.T) {
	r := New()
	for i := range 3 * entries {
		r.Note(Sent, 0, 1, i, 8)
	}
	d, err := Parse(strings.NewReader(dumpOf(t, r, 0)))
	require.NoError(t, err)
	require.Greater(t, len(d.events), entries-entries/stampEvery-2)
	require.Contains(t, d.events[len(d.events)-1].text, "tag 12287,")
	for i := 1; i < len(d.events); i++ {
		require.False(t, d.events[i].at.Before(d.events[i-1].at), "event %d", i)
		require.Less(t, time.Since(d.events[i].at).Abs(), time.Hour)
	}
}

func TestMerge_IsByTime(t *testing.T) {
	a, b := New(), New()
	for i := range 3 {
		a.Stamp()
		a.Note(Sent, 0, 1, i, 8)
		a.Stamp()
		time.Sleep(2 * time.Microsecond) // the clock goes on
		b.Stamp()
		b.Note(Received, 0, 0, i, 8)
		b.Stamp()
		time.Sleep(2 * time.Microsecond)
	}
	var dumps []*Record
	for rank, r := range []*Recorder{a, b} {
		d, err := Parse(strings.NewReader(dumpOf(t, r, rank)))
		require.NoError(t, err)
		dumps = append([]*Record{d}, dumps...)
	}
	var out strings.Builder
	require.NoError(t, Merge(&out, dumps))
	var got []string
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n")[2:] {
		got = append(got, strings.Replace(line[19:], "~", " ", 1))
	}
	require.Equal(t, []string{
		"0   sent to 1, tag 0, 8 bytes, communicator 0", "1   received from 0, tag 0, 8 bytes, communicator 0",
		"0   sent to 1, tag 1, 8 bytes, communicator 0", "1   received from 0, tag 1, 8 bytes, communicator 0",
		"0   sent to 1, tag 2, 8 bytes, communicator 0", "1   received from 0, tag 2, 8 bytes, communicator 0",
	}, got)
}

// Another process shares the memory: what the one writes the other reads.
func TestRing_SharesTheMemory(t *testing.T) {
	ring, fd, err := NewRing()
	if err != nil {
		t.Skip(err)
	}
	r, err := Open(fd)
	require.NoError(t, err)
	r.Note(Sent, 0, 1, 5, 8)
	var b strings.Builder
	require.NoError(t, Dump(&b, ring.Copy(), Origin{Size: 2}))
	require.Contains(t, b.String(), " sent to 1, tag 5")
	require.Len(t, ring.Copy(), partSize)

	r.NameOperations([]string{"Barrier"})
	third := contextid.OnEndpoint(2, 1)
	other := r.OfEndpoint(2)
	other.Note(Collective, contextid.Collective.In(third), 0, 0, 24)
	other.Note(Sent, third, 1, 6, 8)
	other.Note(Sent, third, 1, 6, 8)
	b.Reset()
	require.NoError(t, Dump(&b, ring.Copy(), Origin{Size: 2}))
	require.Contains(t, b.String(), "records\n")
	for _, text := range []string{"endpoint 0: sent to 1, tag 5, 8 bytes, communicator 0",
		"endpoint 2: begins Barrier, 24 bytes, communicator 1", "endpoint 2: sent to 1, tag 6, 8 bytes, communicator 1",
		"endpoint 2: the same, 1 times more"} {
		require.Contains(t, b.String(), " "+text+"\n")
	}
	require.NotContains(t, b.String(), "endpoint 1")
	_, err = Parse(strings.NewReader(b.String()))
	require.NoError(t, err)
	require.NoError(t, ring.Close())
	_, err = Open(0)
	require.Error(t, err, "not memory of a recorder")
}

func TestNote_AllocatesNothing(t *testing.T) {
	r := New()
	require.Zero(t, testing.AllocsPerRun(1000, func() { r.Note(Sent, 0, 1, 2, 3) }))
}

// A rank may have written anything; what comes of it is a dump that can be read.
func FuzzDump(f *testing.F) {
	r := New()
	r.Note(Collective, contextid.Collective.In(comm), 1, 0, 24)
	f.Add(r.raw()[:64], r.raw()[headBytes:headBytes+256], uint64(3), uint8(0))
	f.Add(r.raw()[:64], r.raw()[headBytes:headBytes+256], uint64(3), uint8(2))
	f.Fuzz(func(t *testing.T, head, ring []byte, next uint64, endpoint uint8) {
		endpoint %= contextid.MaxEndpoints
		raw := make([]byte, partSize*(int(endpoint)+1))
		part(raw, 0).version = version
		copy(raw[int(endpoint)*partSize:][:headBytes], head)
		copy(raw[int(endpoint)*partSize+headBytes:], ring)
		m := part(raw, int(endpoint))
		m.next, m.version = next, version
		var b bytes.Buffer
		require.NoError(t, Dump(&b, raw, Origin{Size: 1, Host: string(head)}))
		if len(head) < 100 {
			_, err := Parse(&b)
			require.NoError(t, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	r := New()
	r.Note(Sent, comm, 1, 5, 8)
	var b bytes.Buffer
	if err := Dump(&b, r.raw(), Origin{Size: 1}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Add(title + "0\n2001-09-09T01:46:40.000000000Z   x\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Parse(strings.NewReader(text))
		if err != nil {
			return
		}
		var out strings.Builder
		require.NoError(t, Merge(&out, []*Record{d}))
		for _, c := range out.String() {
			require.True(t, c == '\n' || c >= ' ', "a control character comes through")
		}
	})
}

func BenchmarkNote(b *testing.B) {
	for _, c := range []struct {
		name         string
		kinds, ranks int
	}{{"equal", 1, 1}, {"in turn", 2, 1}, {"unequal", 2, 16}} {
		b.Run(c.name, func(b *testing.B) {
			r, i := New(), 0
			for b.Loop() {
				i++
				r.Note(Sent+Kind(i&(c.kinds-1)), 0, i&(c.ranks-1), 2, 3)
			}
		})
	}
	b.Run("expected", func(b *testing.B) {
		r := New()
		for b.Loop() {
			r.Expect(Received, 0, 1, 2, 3)
			r.NoteExpected(3)
		}
	})
}

// Equal events that follow one another take two records, however many they are.
func TestNote_CountsRepetitions(t *testing.T) {
	r := New()
	for range 1000 {
		r.Note(Sent, 0, 1, 7, 8)
	}
	lines := strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Len(t, lines, 3, "before another event: %s", lines)
	require.Contains(t, lines[2], "the same, 999 times more")
	r.Note(Received, 0, 1, 7, 8)
	lines = strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Len(t, lines, 4, "%s", lines)
	require.Contains(t, lines[1], "sent to 1, tag 7, 8 bytes")
	require.Contains(t, lines[2], "the same, 999 times more")
	require.Contains(t, lines[3], "received from 1")
	require.EqualValues(t, 3, r.m.next, "a stamp, the event and its number")
}

// So do two events that come in turn, as in a ping-pong.
func TestNote_CountsTurns(t *testing.T) {
	r := New()
	for range 500 {
		r.Note(Sent, 0, 1, 7, 8)
		r.Note(Received, 0, 1, 7, 8)
	}
	r.Note(Sent, 0, 1, 7, 8)
	r.Note(Sent, 0, 1, 7, 8)
	lines := strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Len(t, lines, 6, "%s", lines)
	require.Contains(t, lines[1], "sent to 1, tag 7, 8 bytes")
	require.Contains(t, lines[2], "received from 1, tag 7, 8 bytes")
	require.Contains(t, lines[3], "these two in turn, 998 events more")
	require.Contains(t, lines[4], "sent to 1, tag 7, 8 bytes")
	require.Contains(t, lines[5], "the same, 1 times more")
}

// And so do series of messages and their answers, until a series has another length.
func TestNote_CountsSeriesInTurn(t *testing.T) {
	r := New()
	series := func(n int) {
		r.NoteTimes(Received, 0, 1, 7, 8, n-1)
		r.Note(Received, 0, 1, 7, 8)
		r.Note(Sent, 0, 1, 9, 1)
	}
	for range 100 {
		series(64)
	}
	require.EqualValues(t, 4, r.m.next, "a stamp, an event and its number, an answer")
	series(63)
	r.Note(Sleeps, 0, 0, 0, 0)
	lines := strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Len(t, lines, 9, "%s", lines)
	for i, want := range []string{"received from 1, tag 7", "the same, 63 times more", "sent to 1, tag 9",
		"these two series in turn, 198 series more", "received from 1, tag 7", "the same, 62 times more",
		"sent to 1, tag 9", "sleeps"} {
		require.Contains(t, lines[i+1], want)
	}
}

// A rank that is killed while it ends a run, at whatever store, has told of every event before once.
func TestDump_OfARankKilledBetweenRuns(t *testing.T) {
	r := New()
	r.NoteTimes(Sent, 0, 1, 7, 8, 3)
	whole := unfold(t, dumpOf(t, r, 0))
	now, _ := r.m.runs()
	r.write(now) // and not yet the other run
	require.Equal(t, whole, unfold(t, dumpOf(t, r, 0)))
}

// Whatever the order of events, a dump tells all of them: NoteTimes is that many Notes, and NoteExpected one,
// whatever was noted since Expect, and whether or not the event has as many bytes as the last one had.
func TestNote_ByAnyWayTellsEveryEvent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		r := New()
		var want []string
		noted := func(rank, bytes, times int) {
			for range times {
				want = append(want, fmt.Sprintf("received from %d, tag 7, %d bytes, communicator 0", rank, bytes))
			}
		}
		note := func() {
			rank, bytes, times := 1+random.IntN(2), 8<<random.IntN(2), 1+random.IntN(20)*random.IntN(2)
			if random.IntN(2) == 0 {
				r.NoteTimes(Received, 0, rank, 7, bytes, times)
			} else {
				for range times {
					r.Note(Received, 0, rank, 7, bytes)
				}
			}
			noted(rank, bytes, times)
		}
		for range 1 + random.IntN(40) {
			if random.IntN(2) == 0 {
				note()
				continue
			}
			rank, bytes := 1+random.IntN(2), 8<<(random.IntN(8)/7)
			r.Expect(Received, 0, rank, 7, 8)
			switch random.IntN(8) {
			case 0:
				note()
			case 1:
				r.Stamp()
			case 2:
				r.StampNew()
			case 3:
				continue // it has not come
			}
			r.NoteExpected(bytes)
			noted(rank, bytes, 1)
		}
		require.Equal(t, want, unfold(t, dumpOf(t, r, 0)))
	}
}

// An expected event that comes in turn is counted like any other.
func TestNoteExpected_Counts(t *testing.T) {
	r := New()
	for range 500 {
		r.Expect(Received, 0, 1, 7, 8)
		r.NoteExpected(8)
		r.Note(Sent, 0, 1, 7, 8)
	}
	lines := strings.Split(strings.TrimSpace(dumpOf(t, r, 0)), "\n")
	require.Len(t, lines, 5, "%s", lines)
	require.Contains(t, lines[3], "these two in turn, 997 events more")
}

// unfold is the list of events of a dump, with those that it only counts.
func unfold(t *testing.T, dump string) (events []string) {
	t.Helper()
	var runs [][]string
	for _, line := range strings.Split(strings.TrimSpace(dump), "\n")[1:] {
		_, text, _ := strings.Cut(line, " ")
		text = text[2:]
		n, last := 0, len(runs)-1
		if count, _ := fmt.Sscanf(text, "the same, %d times", &n); count > 0 {
			for range n {
				runs[last] = append(runs[last], runs[last][0])
			}
			continue
		}
		if count, _ := fmt.Sscanf(text, "these two in turn, %d events", &n); count == 0 {
			if count, _ = fmt.Sscanf(text, "these two series in turn, %d series", &n); count == 0 {
				runs = append(runs, []string{text})
			}
		}
		for range n {
			runs = append(runs, runs[len(runs)-2])
		}
	}
	return slices.Concat(runs...)
}
