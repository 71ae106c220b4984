package deadlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/plural"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/topology"
)

// Report describes the state of a job, one line per element: what the ranks do, grouped by state with the
// smallest group first; what they have left open on windows; then why the stuck ones cannot go on.
func (j Job) Report() []string {
	lines := append(j.states(), j.open()...)
	for _, reason := range j.reasons() {
		lines = append(lines, "  "+reason)
	}
	return lines
}

// Alone describes what one rank waits for, without knowledge of the others.
func Alone(r *snapshot.Rank) []string {
	j := make(Job, r.Size)
	j[r.Rank] = r
	var lines, reasons []string
	for i := range r.Waits {
		w := &r.Waits[i]
		lines = append(lines, fmt.Sprintf("  rank %d: %s, for %v", r.Rank, j.describe(r.Rank, w, true),
			w.Since.Round(100*time.Millisecond)))
		for k := range w.Ops {
			if o := &w.Ops[k]; o.Kind == snapshot.Recv && o.Name == "" {
				if text := "  " + j.otherMessage(r.Rank, o); text != "  " && !slices.Contains(reasons, text) {
					reasons = append(reasons, text)
				}
			}
		}
	}
	return append(append(lines, j.open()...), reasons...)
}

// states describes what the ranks do.
func (j Job) states() []string {
	type group struct {
		text  string
		ranks []int
		since time.Duration // the longest
	}
	var groups []*group
	add := func(rank int, text string, since time.Duration) {
		i := slices.IndexFunc(groups, func(g *group) bool { return g.text == text })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{text: text})
		}
		g := groups[i]
		if last := len(g.ranks) - 1; last < 0 || g.ranks[last] != rank {
			g.ranks = append(g.ranks, rank)
		}
		g.since = max(g.since, since)
	}
	for rank, r := range j {
		switch {
		case r == nil:
			add(rank, "no answer", 0)
		case r.Phase == snapshot.Finished:
			add(rank, "finished", 0)
		case r.Phase == snapshot.NotBegun:
			add(rank, "has not called Init", 0)
		case len(r.Waits) == 0:
			add(rank, Doing(r), 0)
		}
		if r == nil {
			continue
		}
		for i := range r.Waits {
			add(rank, j.describe(rank, &r.Waits[i], false), r.Waits[i].Since)
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(len(a.ranks), len(b.ranks)) })
	var lines []string
	for _, g := range groups {
		line := fmt.Sprintf("  %s: %s", Ranks(g.ranks), g.text)
		if g.since > 0 {
			line += fmt.Sprintf(", for %v", g.since.Round(100*time.Millisecond))
		}
		lines = append(lines, line)
	}
	return lines
}

// maxOpen bounds the lines on what is open on windows.
const maxOpen = 16

// open describes the Puts and Gets that are not ended, whose bytes may be nowhere yet.
func (j Job) open() (lines []string) {
	more := 0
	for rank, r := range j {
		if r == nil {
			continue
		}
		for _, o := range r.Open {
			if len(lines) == maxOpen {
				more++
				continue
			}
			lines = append(lines, fmt.Sprintf("  rank %d has %s on rank %d's part of window %s, "+
				"the oldest for %v, and no Fence, Flush or Unlock since", rank, Transfers(o.Puts, o.Gets),
				o.Peer, j.commName(rank, o.Comm), o.Since.Round(100*time.Millisecond)))
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("  and Puts and Gets on %s more", plural.Count(more, "part")))
	}
	return lines
}

// Transfers counts Puts and Gets.
func Transfers(puts, gets int) string {
	switch {
	case gets == 0:
		return plural.Count(puts, "Put")
	case puts == 0:
		return plural.Count(gets, "Get")
	}
	return plural.Count(puts, "Put") + " and " + plural.Count(gets, "Get")
}

// Ranks formats a set of ranks, in ascending order: rank 3, ranks 0-2,5.
func Ranks(ranks []int) string {
	word := "ranks "
	if len(ranks) == 1 {
		word = "rank "
	}
	return word + topology.FormatCPUList(ranks)
}

// Describe describes the call of a wait, and the rank that it needs.
func Describe(r *snapshot.Rank, w *snapshot.Wait) string { return Job{r}.describe(0, w, true) }

// describe describes the call of a wait. With peers it names the peer of a point-to-point call.
func (j Job) describe(rank int, w *snapshot.Wait, peers bool) string {
	text := w.Call
	switch {
	case len(w.Ops) == 1 && w.MoreOps == 0:
		text += j.operation(rank, &w.Ops[0], w.Call)
	case len(w.Ops) > 0:
		text += fmt.Sprintf(" for any of %d requests", len(w.Ops)+w.MoreOps)
		if peers || len(w.Ops) <= 4 {
			var parts []string
			for i := range w.Ops {
				o := &w.Ops[i]
				parts = append(parts, string(o.Kind)+j.operation(rank, o, ""))
			}
			text += " (" + strings.Join(parts, "; ") + ")"
		}
	}
	return text + at(w.Site)
}

// operation describes which rank an operation of a call waits for.
func (j Job) operation(rank int, o *snapshot.Op, call string) string {
	var b strings.Builder
	if o.Kind == snapshot.Collective {
		if o.Name != call {
			fmt.Fprintf(&b, " for %s", o.Name)
		}
		if o.Name != snapshot.Finalize {
			fmt.Fprintf(&b, " on %s", j.commName(rank, o.Comm))
		}
		return b.String()
	}
	if o.Kind == snapshot.Lock {
		if call != "Lock" {
			b.WriteString(" for Lock")
		}
		fmt.Fprintf(&b, " of rank %d's part of window %s", o.Peer, j.commName(rank, o.Comm))
		return b.String()
	}
	if o.Name == snapshot.PartOfCall {
		fmt.Fprintf(&b, " on %s (for rank %d)", j.commName(rank, o.Comm), o.Peer)
		return b.String()
	}
	if o.Name != "" {
		fmt.Fprintf(&b, " for %s of rank %d, on %s", o.Name, o.Peer, j.commName(rank, o.Comm))
		return b.String()
	}
	preposition := " to"
	if o.Kind == snapshot.Recv {
		preposition = " from"
	}
	b.WriteString(preposition)
	if o.Peer == snapshot.Any {
		b.WriteString(" any source")
	} else {
		fmt.Fprintf(&b, " %d", o.Peer)
	}
	if o.Tag == snapshot.Any {
		b.WriteString(", any tag")
	} else {
		fmt.Fprintf(&b, ", tag %d", o.Tag)
	}
	if o.Comm != contextid.World {
		fmt.Fprintf(&b, ", on %s", j.commName(rank, o.Comm))
	}
	return b.String()
}

func (j Job) commName(rank int, id uint32) string {
	name := ""
	if id == contextid.World {
		name = "world"
	}
	if c := j.comm(rank, id); c != nil && c.Name != "" {
		name = c.Name
	}
	return contextid.Named(name, id)
}

func (j Job) comm(rank int, id uint32) *snapshot.Comm {
	if r := j[rank]; r != nil {
		for i := range r.Comms {
			if r.Comms[i].ID == id {
				return &r.Comms[i]
			}
		}
	}
	return nil
}

// at formats a source line.
// Doing says where a rank is that does not wait.
func Doing(r *snapshot.Rank) string {
	if r.Call != "" {
		return "in " + r.Call + at(r.At)
	}
	return "in no call of weft" + at(r.At)
}

func at(site string) string {
	if site == "" {
		return ""
	}
	return ", at " + site
}
