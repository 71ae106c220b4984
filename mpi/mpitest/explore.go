package mpitest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weft-mpi/weft/mpi/internal/program"
)

// Explored is the result of Explore.
type Explored struct {
	Matchings int  // runs, each with different matches
	Receives  int  // receives and probes from any source
	Failed    int  // of the matchings
	Complete  bool // all matchings were run
}

// MaxMatchings bounds how many matchings Explore runs; without it 10,000.
func MaxMatchings(n int) Option { return func(o *options) { o.matchings = n } }

const (
	defaultMatchings = 10_000
	// shownFailures is how many failed matchings that fail are shown.
	shownFailures = 5
)

// Explore runs body as a job of n ranks once for each matching: each way in which its receives from any
// source can match messages. If a matching fails, Explore reports the line and the source of each receive,
// and ends the test with FailNow. See the guide for what it does not explore.
//
// Body must behave the same in each run, but for the matches. It fails by returning an error or by the T of
// its context: a failure of the test itself ends the exploration.
func Explore(t *testing.T, n int, body Body, opts ...Option) Explored {
	t.Helper()
	o, err := chosen(t, "Explore", n, body, opts)
	if err != nil {
		t.Fatal(err)
	}
	if o.free || o.fabric != "" {
		t.Fatal("mpitest: Explore with Concurrent or Fabric: it has the ranks take turns")
	}
	found, report := explore(t, n, body, o)
	switch {
	case t.Skipped():
		t.SkipNow()
	case found.Failed > 0 || t.Failed():
		t.Fatal(report)
	}
	t.Log(report)
	return found
}

// choiceKey identifies a receive or a probe from any source: the number-th of a rank.
type choiceKey struct{ rank, number int }

// node is a choice on the path to the current run: its source, and the remaining sources to try.
//
// The path is a branch of the tree of all matchings. Two matchings differ first at some node, so none is run
// twice; and each source that a run shows to be possible is tried, so none is omitted.
type node struct {
	key    choiceKey
	source int
	known  map[int]bool // sources that were tried or will be
	todo   []alternative
}

// alternative is another source for a choice. If its message comes only after other choices, hints has those
// that led to it.
type alternative struct {
	source int
	late   bool
	hints  map[choiceKey]int
}

func explore(t *testing.T, n int, body Body, o *options) (found Explored, report string) {
	t.Helper()
	limit := o.matchings
	if limit == 0 {
		limit = defaultMatchings
	}
	var path []node
	var next alternative
	var failures []string
	keys := map[choiceKey]bool{}
	for !t.Failed() && !t.Skipped() {
		if found.Matchings == limit {
			break
		}
		x := newExploredRun(n, path, next)
		j := newJob(t, n, body, defaultSeed, o)
		j.explored = x
		failure := runOnce(j)
		if !x.infeasible {
			found.Matchings++
			for key := range x.made {
				keys[key] = true
			}
			if x.hasFailed() || failure != nil {
				if found.Failed++; len(failures) < shownFailures {
					failures = append(failures, x.describe(failure))
				}
			}
		}
		path = x.extend(path)
		for len(path) > 0 && len(path[len(path)-1].todo) == 0 {
			path = path[:len(path)-1]
		}
		if len(path) == 0 {
			found.Complete = true
			break
		}
		last := &path[len(path)-1]
		next, last.todo = last.todo[0], last.todo[1:]
		last.source = next.source
	}
	found.Receives = len(keys)
	return found, found.describe(failures)
}

func (f *Explored) describe(failures []string) string {
	var text strings.Builder
	if f.Complete {
		text.WriteString("all ")
	} else {
		text.WriteString("the first ")
	}
	fmt.Fprintf(&text, "%s of %s from any source", count(f.Matchings, "matching"),
		count(f.Receives, "receive"))
	if f.Failed == 0 {
		text.WriteString(" pass")
	} else {
		fmt.Fprintf(&text, ": %d pass; %d fail", f.Matchings-f.Failed, f.Failed)
	}
	if !f.Complete {
		text.WriteString("; there are more, which were not tried")
	}
	for _, failure := range failures {
		text.WriteString("\n" + failure)
	}
	if left := f.Failed - len(failures); left > 0 {
		fmt.Fprintf(&text, "\nand %d more", left)
	}
	return text.String()
}

func count(n int, of string) string {
	if n != 1 {
		of += "s"
	}
	return fmt.Sprintf("%d %s", n, of)
}

// describe returns how a matching fails.
func (x *exploredRun) describe(failure error) string {
	text := []string{"a matching that fails:"}
	keys := slices.SortedFunc(maps.Keys(x.made), func(a, b choiceKey) int {
		if a.rank != b.rank {
			return a.rank - b.rank
		}
		return a.number - b.number
	})
	for _, key := range keys {
		m := x.made[key]
		what := "waits"
		if m.source >= 0 {
			what = fmt.Sprintf("takes from rank %d", m.source)
		}
		call, site := program.CalledFrom(m.callers)
		text = append(text, fmt.Sprintf("  rank %d: %s at %s %s", key.rank, call, site, what))
	}
	lines := x.logged
	if failure != nil {
		lines = append(lines, failure.Error())
	}
	for _, line := range lines {
		text = append(text, "    "+strings.ReplaceAll(line, "\n", "\n    "))
	}
	return strings.Join(text, "\n")
}
