package recorder

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/printable"
)

// A dump is text: a line that begins with title and says whose it is, and a line for each event, the oldest
// first: the time, a ~ where that is known roughly, and what has happened.
const (
	title      = "weft events of rank "
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
	about      = '~'
)

// Origin says of which rank a dump is.
type Origin struct {
	Rank, Size int
	Host       string
	PID        int
	At         time.Time // of the dump
}

// Empty reports whether the copy of a rank's memory has nothing, since no recorder has written there.
func Empty(raw []byte) bool { return len(raw) >= partSize && part(raw, 0).version == 0 }

// part is the memory of an endpoint in the copy of a rank's.
func part(raw []byte, endpoint int) *memory {
	return (*memory)(unsafe.Pointer(&raw[endpoint*partSize]))
}

// line is a line of a dump.
type line struct {
	at    int64 // in ns since 1970
	exact bool
	text  string
}

// Dump writes what is in a copy of a rank's memory. Where several endpoints are in use, each line begins with
// its endpoint, and what counts the events before it counts those of the endpoint. It does not trust the
// rank.
func Dump(w io.Writer, raw []byte, o Origin) error {
	n := len(raw) / partSize
	if n < 1 || n > contextid.MaxEndpoints || len(raw)%partSize != 0 {
		return fmt.Errorf("the recorder of rank %d has %d bytes, not a multiple of %d", o.Rank, len(raw),
			partSize)
	}
	names := part(raw, 0)
	if names.version != version {
		return fmt.Errorf("rank %d has no recorder of version %d", o.Rank, version)
	}
	var kept, all uint64
	var lines []line
	for endpoint := range n {
		m := part(raw, endpoint)
		if m.version != version {
			continue // not in use
		}
		kept, all = kept+min(m.next, entries), all+m.next
		for _, l := range m.lines(names) {
			if n > 1 {
				l.text = fmt.Sprintf("endpoint %d: %s", endpoint, l.text)
			}
			lines = append(lines, l)
		}
	}
	if n > 1 {
		slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s%d of %d, pid %d on %s, at %s: the last %d of %d records\n", title, o.Rank, o.Size,
		o.PID, printable.Line(o.Host), o.At.UTC().Format(timeFormat), kept, all)
	for _, l := range lines {
		mark := about
		if l.exact {
			mark = ' '
		}
		fmt.Fprintf(b, "%s %c %s\n", time.Unix(0, l.at).UTC().Format(timeFormat), mark,
			printable.Line(l.text))
	}
	return b.Flush()
}

// lines are what the memory of an endpoint has, the oldest first.
func (m *memory) lines(names *memory) (list []line) {
	first := m.next - min(m.next, entries)
	times, exact := m.times(first)
	for k, t := range times {
		if m.ring[(first+uint64(k))%entries].kind() != stamp {
			list = append(list, line{t, exact[k], m.text(first+uint64(k), names)})
		}
	}
	if len(times) > 0 {
		for _, text := range m.unwritten(names) {
			list = append(list, line{times[len(times)-1], false, text})
		}
	}
	return list
}

// text says what record number i is.
func (m *memory) text(i uint64, names *memory) string {
	switch r := &m.ring[i%entries]; r.kind() {
	case again:
		return fmt.Sprintf("the same, %d times more", r[0])
	case turns:
		return m.turns(i, r[0])
	default:
		return r.text(names)
	}
}

// turns says that the two runs before record number i have come again, n runs in all.
func (m *memory) turns(i, n uint64) string {
	for back := range uint64(2) { // one of them has a record of its length
		if m.ring[(i-1-back)%entries].kind() == again {
			return fmt.Sprintf("these two series in turn, %d series more", n)
		}
	}
	return fmt.Sprintf("these two in turn, %d events more", n)
}

// unwritten is what has come after the latest record: runs in turn, and the one under way. Where a rank has
// been killed while it ended a run, that may be written already.
func (m *memory) unwritten(names *memory) (texts []string) {
	n := int64(m.ended - m.written)
	if n > 0 {
		texts = append(texts, m.turns(m.next, uint64(n)))
	}
	if now, _ := m.runs(); n >= 0 && now.times > 0 {
		texts = append(texts, (&record{now.first, now.second}).text(names))
		if now.times > 1 {
			texts = append(texts, fmt.Sprintf("the same, %d times more", now.times-1))
		}
	}
	return texts
}

// exactly is how far apart the stamps around a record may be for its time to pass as exact.
const exactly = 10 * time.Microsecond

// times are when the records from first on were written, in ns since 1970, and which of these are exact: what
// is between two stamps is spread evenly, and what is after the last one has its time.
func (m *memory) times(first uint64) (times []int64, exact []bool) {
	n := int(m.next - first)
	times, exact = make([]int64, n), make([]bool, n)
	last := -1 // stamp
	for k := range times {
		r := &m.ring[(first+uint64(k))%entries]
		if r.kind() != stamp {
			if last >= 0 {
				times[k] = times[last]
			}
			continue
		}
		times[k], exact[k] = int64(r[0]), true
		for between := last + 1; between < k; between++ {
			times[between] = times[k]
			if last >= 0 {
				apart := times[k] - times[last]
				times[between] = times[last] + int64(float64(apart)*float64(between-last)/float64(k-last))
				exact[between] = apart <= int64(exactly)
			}
		}
		if last >= 0 && last+1 < k {
			m.atStamp(first, last+1, Wakes, times[last], times, exact)
			m.atStamp(first, k-1, Sleeps, times[k], times, exact)
			m.atStamp(first, k-1, PeerLost, times[k], times, exact)
		}
		last = k
	}
	return times, exact
}

// atStamp gives the record k of those from first on the time of a stamp beside it, if it is of a kind that
// comes with one.
func (m *memory) atStamp(first uint64, k int, kind Kind, t int64, times []int64, exact []bool) {
	if m.ring[(first+uint64(k))%entries].kind() == kind {
		times[k], exact[k] = t, true
	}
}
