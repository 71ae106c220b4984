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

// A dump is text: a line that begins with title and names the rank, and a line for each event, the oldest
// first: the time, a ~ if it is approximate, and what happened.
const (
	title      = "weft events of rank "
	timeFormat = "2006-01-02T15:04:05.000000000Z07:00"
	about      = '~'
)

// Origin describes the rank of a dump.
type Origin struct {
	Rank, Size int
	Host       string
	PID        int
	At         time.Time // time of the dump
}

// Empty reports whether no recorder has written to the copied memory of a rank.
func Empty(raw []byte) bool { return len(raw) >= partSize && part(raw, 0).version == 0 }

// part returns the memory of an endpoint within the copied memory of a rank.
func part(raw []byte, endpoint int) *memory {
	return (*memory)(unsafe.Pointer(&raw[endpoint*partSize]))
}

// line is a line of a dump.
type line struct {
	at    int64 // in ns since 1970
	exact bool
	text  string
}

// Dump writes the contents of a rank's copied memory. If several endpoints are in use, each line begins with
// its endpoint, and repetition counts are those of the endpoint. It does not trust the rank.
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

// lines returns the events of an endpoint, the oldest first.
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

// text describes record number i.
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

// turns describes that the two runs before record number i have repeated in turn, n runs in all.
func (m *memory) turns(i, n uint64) string {
	for back := range uint64(2) { // one of them is a record of its length
		if m.ring[(i-1-back)%entries].kind() == again {
			return fmt.Sprintf("these two series in turn, %d series more", n)
		}
	}
	return fmt.Sprintf("these two in turn, %d events more", n)
}

// unwritten describes the events after the latest record: runs in turn, and the current run. If the rank was
// killed while it ended a run, that may be written already.
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

// exactly is the maximum distance of the stamps around a record whose time counts as exact.
const exactly = 10 * time.Microsecond

// times returns when the records from first on were written, in ns since 1970, and which of these times are
// exact. Records between two stamps are spread evenly, and those after the last one have its time.
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

// atStamp sets the time of record k, counted from first, to that of an adjacent stamp, if its kind comes with
// a stamp.
func (m *memory) atStamp(first uint64, k int, kind Kind, t int64, times []int64, exact []bool) {
	if m.ring[(first+uint64(k))%entries].kind() == kind {
		times[k], exact[k] = t, true
	}
}
