package tracereport

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/plural"
)

// Limits of tables.
const (
	maxCalls    = 30
	maxRankRows = 64
	maxMatrix   = 16 // ranks up to which the matrix of bytes is shown whole
	maxPairs    = 20
)

// WriteText writes the summary.
func (j *Job) WriteText(out io.Writer) error {
	var b strings.Builder
	hosts := map[string]bool{}
	var bytes int64
	for _, r := range j.Ranks {
		hosts[r.Host] = true
		bytes = plus(bytes, r.Sent)
	}
	fmt.Fprintf(&b, "%s on %s, %v, %s of %s bytes", plural.Count(len(j.Ranks), "rank"),
		plural.Count(len(hosts), "host"), rounded(j.length()), plural.Count(j.Messages, "message"),
		size(bytes))
	if j.Put > 0 || j.Got > 0 {
		fmt.Fprintf(&b, "; %s bytes put into windows, %s got", size(j.Put), size(j.Got))
	}
	b.WriteByte('\n')
	j.writeCalls(&b, "CALL", j.Calls)
	if len(j.Regions) > 0 {
		j.writeCalls(&b, "REGION", j.Regions)
	}
	j.writeRanks(&b)
	j.writeBytes(&b)
	j.writeEndpoints(&b)
	for _, r := range j.ordered() {
		if r.Label != "" {
			fmt.Fprintf(&b, "\nrank %d: %s\n", r.Number, r.Label)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// length returns the duration of the job, as far as it is in the trace.
func (j *Job) length() time.Duration { return max(j.End-j.Begin, 1) }

// all returns the total time of all ranks.
func (j *Job) all() (sum time.Duration) {
	for range j.Ranks {
		sum = plus(sum, j.length())
	}
	return sum
}

func (j *Job) ordered() []*Rank {
	list := slices.Clone(j.Ranks)
	slices.SortFunc(list, func(a, b *Rank) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

func table(b *strings.Builder) *tabwriter.Writer {
	b.WriteByte('\n')
	return tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// writeCalls writes the time of each call, the longest first.
func (j *Job) writeCalls(b *strings.Builder, title string, calls map[string]*Call) {
	w := table(b)
	fmt.Fprintf(w, "%s\tCOUNT\tTIME\tSHARE\tASLEEP\t\n", title)
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Or(-cmp.Compare(calls[a].Time, calls[b].Time), cmp.Compare(a, b))
	})
	for _, name := range names[:min(len(names), maxCalls)] {
		c := calls[name]
		fmt.Fprintf(w, "%s\t%d\t%v\t%s\t%v\t\n", name, c.Count, rounded(c.Time), share(c.Time, j.all()),
			rounded(c.Asleep))
	}
	w.Flush()
}

// writeRanks writes the summary of each rank, and their imbalance.
func (j *Job) writeRanks(b *strings.Builder) {
	w := table(b)
	fmt.Fprintln(w, "RANK\tHOST\tIN CALLS\tASLEEP\tSENT\tRECEIVED\tLATE SENDERS\tWAITED\t"+
		"LATE RECEIVERS\tLAY\t")
	list := j.ordered()
	var sum, longest time.Duration
	slowest := 0
	for i, r := range list {
		outside := max(j.length()-r.InCalls, 0)
		if sum = plus(sum, outside); outside > longest {
			longest, slowest = outside, r.Number
		}
		if i < maxRankRows {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d\t%v\t%d\t%v\t\n", r.Number, r.Host,
				share(r.InCalls, j.length()), share(r.Asleep, j.length()), size(r.Sent), size(r.Received),
				r.LateSends.Count, rounded(r.LateSends.Time), r.LateReceives.Count,
				rounded(r.LateReceives.Time))
		}
	}
	w.Flush()
	if n := len(list) - maxRankRows; n > 0 {
		fmt.Fprintf(b, "%s more\n", plural.Count(n, "rank"))
	}
	if mean := sum / time.Duration(len(list)); mean > 0 && len(list) > 1 {
		fmt.Fprintf(b, "\nimbalance: a rank is outside of calls for %v on average, rank %d for %v, %s more\n",
			rounded(mean), slowest, rounded(longest), share(longest-mean, mean))
	}
}

// writeBytes writes the matrix of bytes, or its largest entries.
func (j *Job) writeBytes(b *strings.Builder) {
	list := j.ordered()
	if len(list) <= maxMatrix {
		w := table(b)
		fmt.Fprint(w, "BYTES FROM\\TO\t")
		for _, to := range list {
			fmt.Fprintf(w, "%d\t", to.Number)
		}
		fmt.Fprintln(w)
		for _, from := range list {
			fmt.Fprintf(w, "%d\t", from.Number)
			for _, to := range list {
				fmt.Fprintf(w, "%s\t", size(j.Bytes[[2]int{from.Number, to.Number}]))
			}
			fmt.Fprintln(w)
		}
		w.Flush()
		return
	}
	w := table(b)
	fmt.Fprintln(w, "FROM\tTO\tBYTES\tMESSAGES\t")
	pairs := slices.SortedFunc(maps.Keys(j.Bytes), func(a, b [2]int) int {
		return cmp.Or(-cmp.Compare(j.Bytes[a], j.Bytes[b]), cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
	})
	for _, p := range pairs[:min(len(pairs), maxPairs)] {
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t\n", p[0], p[1], size(j.Bytes[p]), j.Counts[p])
	}
	w.Flush()
}

// writeEndpoints writes the messages of each endpoint, if a rank has used several.
func (j *Job) writeEndpoints(b *strings.Builder) {
	if j.Endpoints == [contextid.MaxEndpoints]Messages{} {
		return
	}
	w := table(b)
	fmt.Fprintln(w, "ENDPOINT\tMESSAGES\tBYTES\t")
	for i, m := range j.Endpoints {
		if m.Count > 0 {
			fmt.Fprintf(w, "%d\t%d\t%s\t\n", i, m.Count, size(m.Bytes))
		}
	}
	w.Flush()
}

func share(part, all time.Duration) string {
	return fmt.Sprintf("%.0f%%", 100*float64(part)/float64(max(all, 1)))
}

// rounded rounds a time to about three digits.
func rounded(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d
}

// size formats a number of bytes with at most four digits.
func size(n int64) string {
	for i, unit := range []string{"", "K", "M", "G", "T"} {
		if n < 10_000 || i == 4 {
			return fmt.Sprintf("%d%s", n, unit)
		}
		n /= 1000
	}
	return ""
}
