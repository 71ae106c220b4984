package output

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/internal/agent"
)

const (
	// Output that is held back is shown after aggregateQuiet without further output, or after aggregateWithin
	// altogether.
	aggregateQuiet  = 200 * time.Millisecond
	aggregateWithin = time.Second
	// maxAggregated is the maximum length of a rank's text that is held back. If a rank writes more, its text
	// up to there is shown at once, and so is what is held of others.
	maxAggregated = 64 << 10
)

// stderrAggregator holds back what ranks write to standard error after their job, or Init, has failed, so
// that identical text of several ranks is shown once, with the ranks.
type stderrAggregator struct {
	held  []rankStderr // in the order of the ranks' first texts
	size  int          // bytes in it
	first time.Time
	last  time.Time
}

type rankStderr struct {
	rank int
	text []byte
}

// hold holds back text of a rank; false if the rank has written more than maxAggregated.
func (l *stderrAggregator) hold(now time.Time, rank int, text []byte) bool {
	i := slices.IndexFunc(l.held, func(w rankStderr) bool { return w.rank == rank })
	if i < 0 {
		i = len(l.held)
		l.held = append(l.held, rankStderr{rank: rank})
	}
	if len(l.held[i].text)+len(text) > maxAggregated {
		return false
	}
	if l.size == 0 {
		l.first = now
	}
	l.held[i].text = append(l.held[i].text, text...)
	l.last, l.size = now, l.size+len(text)
	return true
}

// has reports whether text of a rank is held.
func (l *stderrAggregator) has(rank int) bool {
	return slices.ContainsFunc(l.held, func(w rankStderr) bool { return w.rank == rank })
}

// due returns when to show what is held back; zero for nothing.
func (l *stderrAggregator) due() (at time.Time) {
	if l.size == 0 {
		return at
	}
	if at = l.last.Add(aggregateQuiet); at.After(l.first.Add(aggregateWithin)) {
		at = l.first.Add(aggregateWithin)
	}
	return at
}

// saidAlike is a text and the ranks that wrote it, in rank order.
type saidAlike struct {
	text   []byte
	common []byte // the text without the ranks' own numbers
	ranks  []int
}

// ownRank matches the beginning of an error of package mpi: its rank in the communicator, and in the world
// where that differs.
var ownRank = regexp.MustCompile(`mpi: rank (?:\d+ \(world rank )?(\d+)\)?: `)

// initFailed begins an error of Init. Often all ranks fail alike before the first one has ended.
var initFailed = []byte("mpi: Init: ")

// withoutOwnRank removes the number of the writing rank from the errors in a text.
func withoutOwnRank(text []byte, rank int) []byte {
	return ownRank.ReplaceAllFunc(text, func(b []byte) []byte {
		if m := ownRank.FindSubmatch(b); string(m[1]) != strconv.Itoa(rank) {
			return b
		}
		return []byte("mpi: ")
	})
}

// take removes and returns the texts held back, each once, in the order of arrival.
func (l *stderrAggregator) take() (said []saidAlike) {
	for _, w := range l.held {
		common := withoutOwnRank(w.text, w.rank)
		i := slices.IndexFunc(said, func(s saidAlike) bool { return bytes.Equal(s.common, common) })
		if i < 0 {
			i = len(said)
			said = append(said, saidAlike{text: w.text, common: common})
		} else {
			said[i].text = common
		}
		said[i].ranks = append(said[i].ranks, w.rank)
	}
	for _, s := range said {
		slices.Sort(s.ranks)
	}
	*l = stderrAggregator{}
	return said
}

// HoldStderr holds back what ranks write to standard error from now on, as the job is ending because of a
// failure.
func (o *Output) HoldStderr() { o.ending = len(o.buffers) > 1 }

// holds reports whether a rank's output is held back.
func (o *Output) holds(now time.Time, e agent.Output) bool {
	if e.Stream != agent.Stderr || len(o.buffers[e.Rank][e.Stream].pending) > 0 {
		return false
	}
	if !o.ending && !o.stderr.has(e.Rank) && (len(o.buffers) < 2 || !bytes.Contains(e.Data, initFailed)) {
		return false
	}
	if o.stderr.hold(now, e.Rank, e.Data) {
		return true
	}
	o.showStderr()
	return false
}

// showStderrWhenDue shows what is held back if it is due, or if nothing more can come.
func (o *Output) showStderrWhenDue(now time.Time, last bool) {
	if due := o.stderr.due(); !due.IsZero() && (last || !now.Before(due)) {
		o.showStderr()
	}
}

func (o *Output) showStderr() {
	now := time.Now()
	for _, s := range o.stderr.take() {
		b := &o.buffers[s.ranks[0]][agent.Stderr]
		if len(s.ranks) == 1 {
			b.add(now, s.text)
			if o.ended[s.ranks[0]] {
				b.flush()
			}
			continue
		}
		group := lineBuffer{sink: b.sink, maxLine: b.maxLine}
		switch {
		case b.label != "":
			group.label = fmt.Sprintf("[%s] ", topology.FormatCPUList(s.ranks))
		case !bytes.ContainsRune(bytes.TrimRight(s.text, "\n"), '\n'):
			group.add(now, fmt.Appendf(nil, "%s: ", deadlock.Ranks(s.ranks)))
		default:
			group.add(now, fmt.Appendf(nil, "%s:\n", deadlock.Ranks(s.ranks)))
		}
		group.add(now, s.text)
		group.flush()
	}
}
