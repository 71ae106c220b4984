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

// Empty tells whether the copy of a rank's memory has nothing, since no recorder has written there.
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
		r := &m.ring[(first+uint64(k))%entries]
		if r.kind() == stamp {
			continue
		}
		mark := about
		if exact[k] {
			mark = ' '
		}
		text := r.text(m)
		if r.kind() == repeated {
			text = m.repetition(first+uint64(k), r[0])
		}
		fmt.Fprintf(b, "%s %c %s\n", time.Unix(0, t).UTC().Format(timeFormat), mark, printable.Line(text))
	}
	if m.repeats > 0 && len(times) > 0 {
		at := time.Unix(0, times[len(times)-1])
		fmt.Fprintf(b, "%s %c %s\n", at.UTC().Format(timeFormat), about, m.repetition(m.next, m.repeats))
	}
	return b.Flush()
}

// repetition says that the two records before number i have come again, n events in all.
func (m *memory) repetition(i, n uint64) string {
	latest, before := &m.ring[(i-1)%entries], &m.ring[(i-2)%entries]
	if *latest == *before || latest.kind() == stamp { // then it is the turn of the one before, and once
		return fmt.Sprintf("the same, %d times more", n)
	}
	return fmt.Sprintf("these two in turn, %d events more", n)
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
