package recorder

import (
	"bufio"
	"fmt"
	"io"
	"time"
	"unsafe"

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
func Empty(raw []byte) bool {
	return len(raw) == Size && (*memory)(unsafe.Pointer(unsafe.SliceData(raw))).version == 0
}

// Dump writes what is in a copy of a rank's memory. It does not trust the rank.
func Dump(w io.Writer, raw []byte, o Origin) error {
	if len(raw) != Size {
		return fmt.Errorf("the recorder of rank %d has %d bytes, not %d", o.Rank, len(raw), Size)
	}
	m := (*memory)(unsafe.Pointer(unsafe.SliceData(raw)))
	if m.version != version {
		return fmt.Errorf("rank %d has no recorder of version %d", o.Rank, version)
	}
	first := m.next - min(m.next, entries)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s%d of %d, pid %d on %s, at %s: the last %d of %d records\n", title, o.Rank, o.Size,
		o.PID,
		printable.Line(o.Host), o.At.UTC().Format(timeFormat), m.next-first, m.next)
	times, exact := m.times(first)
	for k, t := range times {
		if m.ring[(first+uint64(k))%entries].kind() == stamp {
			continue
		}
		mark := about
		if exact[k] {
			mark = ' '
		}
		fmt.Fprintf(b, "%s %c %s\n", time.Unix(0, t).UTC().Format(timeFormat), mark,
			printable.Line(m.text(first+uint64(k))))
	}
	if len(times) > 0 {
		at := time.Unix(0, times[len(times)-1]).UTC().Format(timeFormat)
		for _, text := range m.unwritten() {
			fmt.Fprintf(b, "%s %c %s\n", at, about, printable.Line(text))
		}
	}
	return b.Flush()
}

// text says what record number i is.
func (m *memory) text(i uint64) string {
	switch r := &m.ring[i%entries]; r.kind() {
	case again:
		return fmt.Sprintf("the same, %d times more", r[0])
	case turns:
		return m.turns(i, r[0])
	default:
		return r.text(m)
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
func (m *memory) unwritten() (texts []string) {
	n := int64(m.ended - m.written)
	if n > 0 {
		texts = append(texts, m.turns(m.next, uint64(n)))
	}
	if now, _ := m.runs(); n >= 0 && now.times > 0 {
		texts = append(texts, (&record{now.first, now.second}).text(m))
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
