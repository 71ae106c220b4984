package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/tuning"
	"github.com/weft-mpi/weft/mpi"
)

// TuneOptions select what Tune measures.
type TuneOptions struct {
	Collectives []string      // names in package mpi, and Send; nil for all with more than one algorithm
	Ranks       []int         // of communicators; nil for powers of two up to the job's size, and that size
	Min, Max    int           // bytes; each size is eight times the previous one
	MaxMessage  int           // bytes of the longest message of Send, each twice as long as the previous one
	Limit       time.Duration // approximate duration
	All         bool          // print the times of all algorithms
	Table       string        // the file for the rules, which rank 0 writes; "" for none

	// The file for the figures of messages, in a job of MessageJobs, which measures nothing else.
	Report string
	Beside []string // such files, in order; nil for none, so messages are left out
}

// DefaultTune are the default options.
var DefaultTune = TuneOptions{Min: 8, Max: 1 << 20, MaxMessage: 4 << 20, Limit: 2 * time.Minute}

// Limits of a point's measurement.
const (
	tuneRounds = 5   // rounds in which algorithms take turns
	hopeless   = 3.0 // an algorithm that takes hopeless times as long as the fastest is not measured again,
	// after hopelessAfter rounds
	hopelessAfter = 1
	// the choice is accepted within this factor of the best forced algorithm
	tuneMargin = 1.10
	// confirmRounds is the number of rounds in which a better algorithm and the choice take turns again
	confirmRounds = 15
)

// Tune measures every algorithm of the collectives on communicators of several numbers of ranks, at several
// sizes, against weft's own choice, as one of the ranks of the job for which this process was started. Rank 0
// prints the best algorithms to out, and writes rules where these differ from weft's choice. Before them it
// prints the best ways of messages, from the reports of earlier jobs.
//
// If the options are invalid, Tune returns an *OptionError at rank 0; the other ranks then return nil.
func Tune(ctx context.Context, o TuneOptions, by Invocation, out io.Writer) error {
	if o.Report != "" {
		return measureMessages(ctx, o, by)
	}
	return withTuner(ctx, o, by, out, (*tuner).run)
}

// withTuner runs a comparison of collectives as a rank of the job.
func withTuner(ctx context.Context, o TuneOptions, by Invocation, out io.Writer,
	body func(t *tuner) error) error {
	settings, err := by.settings(nil)
	if err != nil {
		return err
	}
	var own error
	err = mpi.Run(ctx, func(_ context.Context, world *mpi.Comm) error {
		t, err := newTuner(o, world, out)
		if err == nil {
			t.fabric = settings.Of(setting.Fabric).String()
			err = body(t)
		}
		if option, is := errors.AsType[*OptionError](err); is {
			if own = option; world.Rank() != 0 {
				own = nil
			}
			return nil
		}
		if errors.Is(err, ErrInconsistent) {
			own, err = err, nil
		}
		return err
	}, mpi.Config{Settings: by.Settings})
	return errors.Join(err, own)
}

// tuned is a collective to tune.
type tuned struct {
	name  string // in package mpi
	of    func(s *session, n int) operation
	sized bool // it moves bytes: a block or a vector
}

// tunable are the collectives with a choice of algorithms whose ranks all know the length.
var tunable = []tuned{
	{"Barrier", func(s *session, _ int) operation {
		return operation{call: func() error { return mpi.Barrier(s.world) }}
	}, false},
	{"Bcast", broadcast, true},
	{"Gather", gather, true},
	{"Scatter", scatter, true},
	{"Allgather", allgather, true},
	{"Alltoall", alltoall, true},
	{"Reduce", reduce, true},
	{"Allreduce", allreduce, true},
	{"ReduceScatterBlock", reduceScatterBlock, true},
	{"Scan", scan, true},
	{"Exscan", exscan, true},
}

// tuner is the state of Tune at one rank.
type tuner struct {
	TuneOptions
	world   *mpi.Comm
	fabric  string // that was asked for
	out     *table
	session *session // for building the operations
	table   *output  // of rank 0; nil for none
	points  []tunePoint
	slice   float64 // seconds per algorithm and point

	messagePoints []tunePoint // for which there are no rules
}

// tunePoint is the result at one number of ranks and one size.
type tunePoint struct {
	tuned
	ranks, bytes  int
	chosen, best  string
	took, fastest float64 // µs
}

// gain returns how many times as fast the best algorithm is as the chosen one.
func (p *tunePoint) gain() float64 { return p.took / p.fastest }

func newTuner(o TuneOptions, world *mpi.Comm, out io.Writer) (*tuner, error) {
	if world.Rank() != 0 {
		out = io.Discard
	}
	t := &tuner{TuneOptions: o, world: world, out: &table{out: out}}
	size := world.Size()
	if t.Ranks == nil {
		for n := 2; n < size; n *= 2 {
			t.Ranks = append(t.Ranks, n)
		}
		t.Ranks = append(t.Ranks, size)
	}
	slices.Sort(t.Ranks)
	t.Ranks = slices.Compact(t.Ranks)
	if err := t.Check(size); err != nil {
		return nil, err
	}
	if len(t.wanted()) == 0 && len(t.Beside) == 0 {
		return nil, optionErrorf("%s", notAlone)
	}
	if o.Table != "" && world.Rank() == 0 {
		var err error
		if t.table, err = newOutput("table", o.Table); err != nil {
			return nil, err
		}
	}
	t.session = &session{
		Benchmark: &Benchmark{Name: messageTimes.Name, spec: collective}, Options: Default, world: world,
		instruments: instruments{now: mpi.Wtime, pattern: pattern, warmUp: warmUpTime},
		send:        buffer(o.Max * size), recv: buffer(o.Max * size),
	}
	t.session.Beside = o.Beside
	return t, nil
}

// Check returns an *OptionError for options that are invalid in a job of size ranks.
func (o *TuneOptions) Check(size int) error {
	limit := maxBuffers / 8 / max(size, 1)
	switch {
	case size < 2:
		return optionErrorf("collectives are compared on at least 2 ranks, not on %d", size)
	case o.Min < 1 || o.Max < o.Min || o.Max > limit:
		return optionErrorf("sizes from %d to %d bytes on %d ranks: 1 to %d are possible", o.Min, o.Max, size,
			limit)
	case len(o.Ranks) > 0 && (slices.Min(o.Ranks) < 2 || slices.Max(o.Ranks) > size):
		return optionErrorf("communicators of %v ranks in a job of %d: 2 to %[2]d are possible", o.Ranks,
			size)
	}
	known := []string{messageName}
	for _, c := range tunable {
		known = append(known, c.name)
	}
	for _, name := range o.Collectives {
		if !slices.Contains(known, name) {
			return optionErrorf("%.60q has no choice that could be tuned; these have: %s", name,
				strings.Join(known, ", "))
		}
	}
	return nil
}

// sizes returns the sizes of the messages of a collective.
func (t *tuner) sizes(c *tuned) (list []int) {
	if !c.sized {
		return []int{0}
	}
	for n := t.Min; n < t.Max; n *= 8 {
		list = append(list, max(n&^3, 4))
	}
	return append(list, max(t.Max&^3, 4))
}

// wanted returns the collectives to measure.
func (o *TuneOptions) wanted() []tuned {
	if o.Collectives == nil {
		return tunable
	}
	return slices.DeleteFunc(slices.Clone(tunable), func(c tuned) bool {
		return !slices.Contains(o.Collectives, c.name)
	})
}

func (t *tuner) run() error {
	if err := t.session.warmUpRanks(); err != nil {
		return err
	}
	t.share()
	t.out.printf("\n# weft tune, %d ranks, fabric %s\n# %-18s%7s%10s  %-19s%12s  %-19s%12s%8s\n",
		t.world.Size(), t.fabric, "call", "ranks", "bytes", "chosen", "us", "best", "us", "gain")
	if err := t.messages(); err != nil {
		return err
	}
	for _, n := range t.Ranks {
		some, err := t.first(n)
		if err != nil {
			return err
		}
		if some != nil {
			for _, c := range t.wanted() {
				if err := t.collective(some, c); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
			if err := some.Free(); err != nil {
				return err
			}
		}
		if err := mpi.Barrier(t.world); err != nil {
			return err
		}
	}
	return t.finish()
}

// share divides the time among all measurements of collectives.
func (t *tuner) share() {
	measurements := 0
	for _, c := range t.wanted() {
		all, err := tuning.Algorithms(c.name)
		if err == nil {
			measurements += (len(all) + 1) * len(t.sizes(&c)) * len(t.Ranks)
		}
	}
	limit := t.Limit
	if len(t.Beside) > 0 {
		limit -= t.messageLimit()
	}
	t.slice = limit.Seconds() / float64(max(measurements, 1))
}

// contender is an algorithm to measure, on its own communicator, on which it is forced, or a way of messages.
type contender struct {
	name  string // "" for what is chosen
	world *mpi.Comm
	call  func() error
	out   bool      // too slow, or unable to carry out the call
	times []float64 // µs of a call, one for each round; the mean of the ranks
}

// collective measures the algorithms of one collective on the ranks of a communicator.
func (t *tuner) collective(some *mpi.Comm, c tuned) error {
	names, err := tuning.Algorithms(c.name)
	if err != nil {
		return err
	}
	var all []*contender
	for _, name := range append([]string{""}, names...) {
		x := &contender{name: name}
		if x.world, err = some.Dup(); err != nil {
			return err
		}
		selection := ""
		if name != "" {
			selection = c.name + ":" + name
		}
		if err := tuning.Select(x.world, selection); err != nil {
			return err
		}
		all = append(all, x)
	}
	for _, n := range t.sizes(&c) {
		p, err := t.point(some, c, n, all)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		t.points = append(t.points, p)
		t.print(&p)
	}
	for _, x := range all {
		if err := x.world.Free(); err != nil {
			return err
		}
	}
	return nil
}

// print prints the row of a point.
func (t *tuner) print(p *tunePoint) {
	t.out.printf("%-20s%7d%10d  %-19s%12.2f  %-19s%12.2f%8.2f\n", p.name, p.ranks, p.bytes, p.chosen, p.took,
		p.best, p.fastest, p.gain())
}

// warmUpCalls is enough calls for everything that a communicator sets up after some calls.
const warmUpCalls = 12

// point measures all algorithms at one size.
func (t *tuner) point(some *mpi.Comm, c tuned, n int, all []*contender) (tunePoint, error) {
	p := tunePoint{tuned: c, ranks: some.Size(), bytes: n}
	for _, x := range all {
		s := *t.session
		s.world = x.world
		x.call, x.out, x.times = c.of(&s, n).call, false, nil
		for range warmUpCalls {
			if err := x.call(); err != nil {
				return p, err
			}
		}
		if used := tuning.Used(x.world); x.name == "" {
			p.chosen = used
		} else if used != x.name {
			x.out = true
		}
	}
	if err := t.rounds(some, all, tuneRounds, t.slice/tuneRounds); err != nil {
		return p, err
	}
	best, auto := t.judge(&p, all), all[0]
	if best == nil {
		return p, nil
	}
	// As it may be chance, the two take turns again.
	pair := []*contender{auto, best}
	auto.times, best.times, auto.out, best.out = nil, nil, false, false
	if err := t.rounds(some, pair, confirmRounds, t.slice/tuneRounds); err != nil {
		return p, err
	}
	p.took, p.fastest = median(auto.times), median(auto.times)
	if took := median(best.times); took*tuneMargin < p.took {
		p.best, p.fastest = best.name, took
	}
	return p, nil
}

// judge sets the figures of a point to those of weft's choice, the first contender. It returns another one
// that is better; nil for none.
func (t *tuner) judge(p *tunePoint, all []*contender) *contender {
	auto := all[0]
	if t.All {
		for _, x := range all[1:] {
			if len(x.times) > 0 {
				t.out.printf("#%-19s%7d%10d  %-19s%12.2f\n", p.name, p.ranks, p.bytes, x.name,
					median(x.times))
			}
		}
	}
	best := fastest(all)
	for _, x := range all[1:] {
		if x.name == p.chosen { // the same algorithm or way, so these are more figures of it
			auto.times = append(auto.times, x.times...)
		}
	}
	p.took, p.best, p.fastest = median(auto.times), p.chosen, median(auto.times)
	if best == nil || best.name == p.chosen || median(best.times)*tuneMargin >= p.took {
		return nil
	}
	return best
}

// fastest returns the contender with the lowest median, other than weft's own choice.
func fastest(all []*contender) (best *contender) {
	for _, x := range all[1:] {
		if len(x.times) > 0 && (best == nil || median(x.times) < median(best.times)) {
			best = x
		}
	}
	return best
}

// rounds measures contenders in turn for the given seconds each, in alternating direction.
func (t *tuner) rounds(some *mpi.Comm, all []*contender, rounds int, seconds float64) error {
	for round := range rounds {
		order := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, x := range order {
			if x.out {
				continue
			}
			took, err := t.measure(some, x.call, seconds)
			if err != nil {
				return err
			}
			x.times = append(x.times, took)
		}
		if round < hopelessAfter {
			continue
		}
		shortest := math.Inf(1)
		for _, x := range all {
			shortest = min(shortest, median(x.times))
		}
		for _, x := range all {
			x.out = x.out || x.name != "" && len(all) > 2 && median(x.times) > hopeless*shortest
		}
	}
	return nil
}

// measure returns the time of a call in µs, the mean over the ranks, from calls that take about the given
// seconds including the barriers between them.
func (t *tuner) measure(some *mpi.Comm, call func() error, seconds float64) (float64, error) {
	now := t.session.now
	took := func(calls int) (inside, all float64, err error) {
		began := now()
		for range calls {
			start := now()
			if err := call(); err != nil {
				return 0, 0, err
			}
			inside += now() - start
			if err := mpi.Barrier(some); err != nil {
				return 0, 0, err
			}
		}
		return inside, now() - began, nil
	}
	_, all, err := took(2)
	if err != nil {
		return 0, err
	}
	n, err := callsWithin(some, seconds, all/2, 2000)
	if err != nil {
		return 0, err
	}
	inside, _, err := took(n)
	if err != nil {
		return 0, err
	}
	mean := []float64{inside * 1e6 / float64(n)}
	err = mpi.Allreduce(some, mpi.InPlace[float64](), mean, mpi.Sum[float64]())
	return mean[0] / float64(some.Size()), err
}

// callsWithin returns how many calls fit into a time in seconds if one takes one seconds, from 2 to most. It
// is the same at all ranks of a communicator.
func callsWithin(some *mpi.Comm, seconds, one, most float64) (int, error) {
	calls := []float64{seconds / one}
	err := mpi.Allreduce(some, mpi.InPlace[float64](), calls, mpi.Min[float64]())
	return int(max(2, min(calls[0], most))), err
}

func median(times []float64) float64 {
	if len(times) == 0 {
		return math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(times))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// finish prints the summary, and writes the table.
func (t *tuner) finish() error {
	if t.world.Rank() != 0 {
		return nil
	}
	within, product, maxGain := 0, 0.0, 1.0
	points := slices.Concat(t.messagePoints, t.points)
	for i := range points {
		gain := points[i].gain()
		if gain <= tuneMargin {
			within++
		}
		product += math.Log(gain)
		maxGain = max(maxGain, gain)
	}
	t.out.printf("# The choice is within 10 %% of the best at %d of %d points; the best gains %.2f in the "+
		"mean, %.2f at most.\n", within, len(points), math.Exp(product/float64(max(len(points), 1))), maxGain)
	rules := rulesOf(t.points)
	err := t.table.write(func(w io.Writer) error { return writeRules(w, rules) })
	return errors.Join(t.out.err, err)
}

// rulesOf returns rules for the points at which another algorithm than the chosen one was better. A rule
// applies from its point up to the next one in ranks and in bytes; the last one is unbounded.
func rulesOf(points []tunePoint) (rules []tuning.Rule) {
	rules = []tuning.Rule{}
	for i := range points {
		p := &points[i]
		if p.best == p.chosen {
			continue
		}
		r := tuning.Rule{Operation: p.name, Algorithm: p.best, MinRanks: p.ranks, MinBytes: p.bytes}
		ranks := next(points, func(q *tunePoint) (int, bool) { return q.ranks, q.ranks > p.ranks })
		bytes := next(points, func(q *tunePoint) (int, bool) {
			return q.bytes, q.name == p.name && q.bytes > p.bytes
		})
		r.MaxRanks, r.MaxBytes = max(ranks-1, 0), max(bytes-1, 0)
		if last := len(rules) - 1; last >= 0 && continues(&rules[last], &r) {
			rules[last].MaxBytes = r.MaxBytes
			continue
		}
		rules = append(rules, r)
	}
	return rules
}

// continues reports whether q is the same rule as r for the following bytes.
func continues(r, q *tuning.Rule) bool {
	return r.Operation == q.Operation && r.Algorithm == q.Algorithm && r.MinRanks == q.MinRanks &&
		r.MaxBytes > 0 && r.MaxBytes+1 == q.MinBytes
}

// next returns the least of the points' figures; 0 for none.
func next(points []tunePoint, of func(p *tunePoint) (int, bool)) (smallest int) {
	for i := range points {
		if n, ok := of(&points[i]); ok && (smallest == 0 || n < smallest) {
			smallest = n
		}
	}
	return smallest
}

// writeRules writes a table with a rule in each line.
func writeRules(w io.Writer, rules []tuning.Rule) error {
	text := "["
	for i, r := range rules {
		if i > 0 {
			text += ","
		}
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		text += "\n  " + string(line)
	}
	if len(rules) > 0 {
		text += "\n"
	}
	_, err := io.WriteString(w, text+"]\n")
	return err
}
