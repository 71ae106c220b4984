// Package top shows what the ranks of a running job do: on a terminal, where keys sort, filter and scroll, or
// as plain lines.
package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weft-mpi/weft/internal/live"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/printable"
)

// A View is the part of a job that is shown. It does no I/O.
type View struct {
	job    *live.Job
	rows   []row
	column int // that the rows are sorted by
	turned bool
	filter string
	typing bool // keys go into the filter
	paused bool
	top    int // first row that is shown
}

// row is a rank, with its rates since the previous sample.
type row struct {
	live.Rank
	messages, bytes, waiting float64   // a second; waiting is the time that goroutines slept
	endpoints                []float64 // of messages, by endpoint; nil while one is in use
	known                    bool      // the rates
}

// column is a column of the table.
type column struct {
	key     string
	name    string
	right   bool // numbers, of which the largest come first
	cell    func(r *row) string
	compare func(a, b *row) int
	several bool // shown where a rank uses several endpoints
}

var columns = []column{
	{key: "r", name: "RANK", cell: func(r *row) string { return strconv.Itoa(r.Rank.Rank) },
		compare: func(a, b *row) int { return cmp.Compare(a.Rank.Rank, b.Rank.Rank) }},
	{key: "h", name: "HOST", cell: func(r *row) string { return printable.Line(r.Host) },
		compare: func(a, b *row) int { return cmp.Compare(a.Host, b.Host) }},
	{key: "s", name: "STATE", cell: func(r *row) string { return printable.Line(string(r.State)) },
		compare: func(a, b *row) int { return cmp.Compare(a.State, b.State) }},
	{key: "m", name: "MSG/S", right: true, cell: func(r *row) string { return r.rate(r.messages) },
		compare: func(a, b *row) int { return cmp.Compare(a.messages, b.messages) }},
	{key: "b", name: "BYTES/S", right: true, cell: func(r *row) string { return r.rate(r.bytes) },
		compare: func(a, b *row) int { return cmp.Compare(a.bytes, b.bytes) }},
	{key: "w", name: "WAIT", right: true, cell: func(r *row) string {
		if !r.known {
			return "-"
		}
		return fmt.Sprintf("%.0f%%", 100*r.waiting)
	}, compare: func(a, b *row) int { return cmp.Compare(a.waiting, b.waiting) }},
	{key: "M", name: "MEMORY", right: true, cell: func(r *row) string {
		if r.Up == 0 {
			return "-"
		}
		return short(float64(r.Memory + r.Registered))
	}, compare: func(a, b *row) int { return cmp.Compare(a.Memory+a.Registered, b.Memory+b.Registered) }},
	{key: "p", name: "PHASES", right: true, cell: func(r *row) string { return phases(r.Phases) },
		compare: func(a, b *row) int { return slices.Compare(a.Phases, b.Phases) }},
	{key: "l", name: "LANES", right: true, cell: func(r *row) string { return lanes(&r.Rank) },
		compare: func(a, b *row) int { return cmp.Compare(a.LanesLost, b.LanesLost) }},
	{key: "e", name: "ENDPOINTS", right: true, several: true, cell: func(r *row) string {
		var parts []string
		for _, n := range r.endpoints {
			parts = append(parts, r.rate(n))
		}
		return strings.Join(parts, " ")
	}, compare: func(a, b *row) int { return cmp.Compare(a.busiest(), b.busiest()) }},
	{key: "f", name: "FOR", right: true, cell: func(r *row) string {
		if r.For == 0 {
			return ""
		}
		return duration(r.For)
	}, compare: func(a, b *row) int { return cmp.Compare(a.For, b.For) }},
	{key: "c", name: "CALL", cell: func(r *row) string { return printable.Line(r.Call) },
		compare: func(a, b *row) int { return cmp.Compare(a.Call, b.Call) }},
}

// columns are those that are shown.
func (v *View) columns() (shown []*column) {
	several := slices.ContainsFunc(v.rows, func(r row) bool { return len(r.endpoints) > 0 })
	for i := range columns {
		if c := &columns[i]; several || !c.several {
			shown = append(shown, c)
		}
	}
	return shown
}

// busiest is the rate of the endpoint that sends most.
func (r *row) busiest() float64 {
	if len(r.endpoints) == 0 {
		return 0
	}
	return slices.Max(r.endpoints)
}

func (r *row) rate(n float64) string {
	if !r.known {
		return "-"
	}
	return short(n)
}

// short formats a number with at most four digits, and k, M, G or T for powers of a thousand.
func short(n float64) string {
	units := []string{"", "k", "M", "G", "T"}
	for i, unit := range units {
		if n < 9999.5 || i == len(units)-1 {
			return strconv.FormatFloat(n, 'f', 0, 64) + unit
		}
		n /= 1000
	}
	return ""
}

func duration(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// phases formats the number of channels in each phase: 3x1 2x2 are three in the first and two in the second.
func phases(of []int) string {
	var parts []string
	for i, n := range of {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%dx%d", n, i+1))
		}
	}
	return strings.Join(parts, " ")
}

func lanes(r *live.Rank) string {
	switch {
	case r.LanesLost > 0:
		return fmt.Sprintf("%d, %d lost", r.Lanes, r.LanesLost)
	case r.Lanes > 0:
		return strconv.Itoa(r.Lanes)
	}
	return ""
}

// Show updates the view with the answer of the job's launcher.
func (v *View) Show(j *live.Job) {
	if v.paused {
		return
	}
	before := v.job
	v.job, v.rows = j, make([]row, len(j.Ranks))
	for i := range j.Ranks {
		r := row{Rank: j.Ranks[i]}
		var old live.Rank // that of the rank's Init, at first
		if before != nil && len(before.Ranks) == len(j.Ranks) {
			old = before.Ranks[i]
		}
		if passed := (r.Up - old.Up).Seconds(); passed > 0 {
			r.known = true
			r.messages = float64(r.Sent-old.Sent) / passed
			r.bytes = float64(r.SentBytes-old.SentBytes) / passed
			r.waiting = (r.Asleep - old.Asleep).Seconds() / passed
		}
		for i, n := range r.SentBy {
			if i < len(old.SentBy) {
				n -= old.SentBy[i]
			}
			r.endpoints = append(r.endpoints, float64(n)/(r.Up-old.Up).Seconds())
		}
		v.rows[i] = r
	}
}

// shown returns the rows that the filter passes, sorted.
func (v *View) shown() []*row {
	var list []*row
	want := strings.ToLower(v.filter)
	for i := range v.rows {
		r := &v.rows[i]
		text := fmt.Sprintf("rank %d %s %s %s", r.Rank.Rank, r.Host, r.State, r.Call)
		if strings.Contains(strings.ToLower(text), want) {
			list = append(list, r)
		}
	}
	c := &columns[v.column]
	slices.SortStableFunc(list, func(a, b *row) int {
		order := c.compare(a, b)
		if c.right != v.turned {
			order = -order
		}
		return order
	})
	return list
}

// Style says how a line is shown.
type Style uint8

const (
	Normal Style = iota
	Bold
	Head  // of the columns
	Alarm // of a rank that is stuck
	Faint // of a rank that has ended
)

// A Line is a line of the view.
type Line struct {
	Text  string
	Style Style
}

// Plain returns the whole view as lines, without limits on their width or number.
func (v *View) Plain() []string {
	var text []string
	for _, l := range append(v.summary(), v.table(v.shown())...) {
		text = append(text, strings.TrimRight(l.Text, " "))
	}
	return text
}

// Lines returns the view for a terminal of a height.
func (v *View) Lines(height int) []Line {
	if v.job == nil {
		return []Line{{Text: "weft top: waiting for the job to tell what its ranks do; q quits"}}
	}
	lines := append(v.summary(), Line{Text: v.status()})
	rows := v.shown()
	room := max(1, height-len(lines)-2)
	v.top = max(0, min(v.top, len(rows)-room))
	table := v.table(rows)
	lines = append(lines, table[0])
	lines = append(lines, table[1+v.top:1+min(len(rows), v.top+room)]...)
	for len(lines) < height-1 {
		lines = append(lines, Line{})
	}
	keys := ""
	for _, c := range v.columns() {
		keys += c.key + " "
	}
	return append(lines, Line{Text: "q quit   " + keys + "sort, again to reverse   / filter   " +
		"space pause   arrows scroll", Style: Faint})
}

// summary describes the job and the sums over its ranks.
func (v *View) summary() []Line {
	j := v.job
	hosts, states, order := map[string]bool{}, map[live.State]int{}, []live.State(nil)
	var messages, bytes float64
	for i := range v.rows {
		r := &v.rows[i]
		hosts[r.Host] = true
		if states[r.State]++; states[r.State] == 1 {
			order = append(order, r.State)
		}
		messages, bytes = messages+r.messages, bytes+r.bytes
	}
	slices.Sort(order)
	var parts []string
	for _, s := range order {
		parts = append(parts, fmt.Sprintf("%d %s", states[s], printable.Line(string(s))))
	}
	return []Line{
		{fmt.Sprintf("weft top: %s, pid %d, %s on %s, up %v", printable.Line(j.Name), j.PID,
			plural.Count(j.Size, "rank"), plural.Count(len(hosts), "host"), j.Up.Round(time.Second)), Bold},
		{fmt.Sprintf("%s; %s messages/s, %s bytes/s", strings.Join(parts, ", "), short(messages),
			short(bytes)), Normal},
	}
}

// status describes how the rows are chosen.
func (v *View) status() string {
	text := "sorted by " + strings.ToLower(columns[v.column].name)
	if v.turned {
		text += ", reversed"
	}
	switch {
	case v.typing:
		text += "; filter: " + v.filter + "_"
	case v.filter != "":
		text += "; filter: " + v.filter
	}
	if v.paused {
		text += "; paused"
	}
	return text
}

// table returns the column titles and the rows.
func (v *View) table(rows []*row) []Line {
	cells, columns := make([][]string, 1+len(rows)), v.columns()
	width := make([]int, len(columns))
	for i := range columns {
		cells[0] = append(cells[0], columns[i].name)
		for k, r := range rows {
			cells[k+1] = append(cells[k+1], columns[i].cell(r))
		}
	}
	for _, line := range cells {
		for i, text := range line {
			width[i] = max(width[i], utf8.RuneCountInString(text))
		}
	}
	lines := make([]Line, len(cells))
	for k, line := range cells {
		var b strings.Builder
		for i, text := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(text))
			if columns[i].right {
				text = pad + text
			} else if i < len(columns)-1 {
				text += pad
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(text)
		}
		lines[k] = Line{b.String(), Head}
		if k > 0 {
			lines[k].Style = styleOf(rows[k-1].State)
		}
	}
	return lines
}

func styleOf(s live.State) Style {
	switch s {
	case live.Stuck, live.Silent, live.Stopped:
		return Alarm
	case live.Ended, live.Finished:
		return Faint
	}
	return Normal
}
