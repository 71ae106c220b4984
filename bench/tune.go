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
	Min, Max    int           // bytes; each size is twice the previous one
	MaxMessage  int           // bytes of the longest message of Send
	Limit       time.Duration // approximate duration
	All         bool          // print the times of all algorithms
	Table       string        // the file for the rules, which rank 0 writes; "" for none
}

// DefaultTune are the default options.
var DefaultTune = TuneOptions{Min: 8, Max: 1 << 20, MaxMessage: 4 << 20, Limit: 2 * time.Minute}

// Limits of a point's measurement.
const (
	tuneRounds = 9   // rounds in which the ways take turns
	hopeless   = 3.0 // a way that takes hopeless times as long as the fastest is not measured again,
	// after hopelessAfter rounds
	hopelessAfter = 1
	// the choice is accepted within this factor of the best forced way
	tuneMargin = 1.10
	// confirmRounds is the number of rounds in which better ways and the choice take turns again
	confirmRounds = 15
)

// Tune measures every algorithm of the collectives on communicators of several numbers of ranks, and every
// way of messages between ranks 0 and 1, at several sizes, against weft's own choice, as one of the ranks of
// the job for which this process was started. Rank 0 prints the best ones to out, and writes rules where
// another algorithm is faster than weft's choice.
//
// If the options are invalid, Tune returns an *OptionError at rank 0; the other ranks then return nil.
func Tune(ctx context.Context, o TuneOptions, by Invocation, out io.Writer) error {
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
	slice   float64 // seconds for a way and a point
}

// tunePoint is the result at one number of ranks and one size.
type tunePoint struct {
	tuned
	ranks, bytes  int
	chosen, best  string
	took, fastest float64 // µs, medians
	// The median over the rounds of how many times as fast the best way is as the choice, and the interval
	// that has it in 95 % of all cases; 1 if the choice is the best.
	gain, low, high float64
	standing        standing
}

// standing is how weft's choice compares with the best way.
type standing uint8

const (
	within  standing = iota // the margin
	unclear                 // the median is beyond the margin, the interval is not
	slower                  // the interval is beyond the margin
)

func (s standing) String() string { return [...]string{"", "unclear", "slower"}[s] }

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
	if o.Table != "" && world.Rank() == 0 {
		var err error
		if t.table, err = newOutput("table", o.Table); err != nil {
			return nil, err
		}
	}
	bytes := max(o.Max*size, o.MaxMessage)
	t.session = &session{
		Benchmark: &Benchmark{Name: "tune", spec: collective}, Options: Default, world: world,
		instruments: instruments{now: mpi.Wtime, pattern: pattern, warmUp: warmUpTime},
		send:        buffer(bytes), recv: buffer(bytes),
	}
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
	for n := t.Min; n < t.Max; n *= 2 {
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
	if o := &t.TuneOptions; o.comparesMessages() {
		if err := t.messages(); err != nil {
			return fmt.Errorf("%s: %w", messageName, err)
		}
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

// share divides the time among all measurements.
func (t *tuner) share() {
	measurements := 0
	if t.comparesMessages() {
		measurements = (len(messageWays) + 1) * len(t.messageSizes())
	}
	for _, c := range t.wanted() {
		all, err := tuning.Algorithms(c.name)
		if err == nil {
			measurements += (len(all) + 1) * len(t.sizes(&c)) * len(t.Ranks)
		}
	}
	t.slice = t.Limit.Seconds() / float64(max(measurements, 1))
}

// contender is an algorithm to measure, on its own communicator, on which it is forced, or a way of messages.
type contender struct {
	name  string // "" for what is chosen
	world *mpi.Comm
	// measure returns the time of a call in µs, the mean of the ranks, from calls that take about the given
	// seconds
	measure func(seconds float64) (float64, error)
	used    func() string // names what carried out the latest call
	out     bool          // too slow, or unable to carry out the call
	times   []float64     // that measure returned, one for each round
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
	t.out.printf("%-20s%7d%10d  %-19s%12.2f  %-19s%12.2f%8.2f", p.name, p.ranks, p.bytes, p.chosen, p.took,
		p.best, p.fastest, p.gain)
	if p.standing != within {
		t.out.printf("  (%.2f-%.2f) %v", p.low, p.high, p.standing)
	}
	t.out.printf("\n")
}

// warmUpCalls is enough calls for everything that a communicator sets up after some calls.
const warmUpCalls = 12

// point measures all algorithms at one size.
func (t *tuner) point(some *mpi.Comm, c tuned, n int, all []*contender) (tunePoint, error) {
	p := tunePoint{tuned: c, ranks: some.Size(), bytes: n}
	for _, x := range all {
		s := *t.session
		s.world = x.world
		call := c.of(&s, n).call
		x.out, x.used = false, func() string { return tuning.Used(x.world) }
		x.measure = func(seconds float64) (float64, error) { return t.measure(some, call, seconds) }
		for range warmUpCalls {
			if err := call(); err != nil {
				return p, err
			}
		}
		x.out = x.name != "" && x.used() != x.name
	}
	return p, t.compare(&p, all)
}

// compare measures contenders, weft's choice first, and sets the result of a point.
func (t *tuner) compare(p *tunePoint, all []*contender) error {
	if err := t.rounds(all, tuneRounds); err != nil {
		return err
	}
	p.chosen = all[0].used() // not before: a communicator's first calls may go otherwise
	if t.All {
		for _, x := range all[1:] {
			if len(x.times) > 0 {
				t.out.printf("#%-19s%7d%10d  %-19s%12.2f\n", p.name, p.ranks, p.bytes, x.name,
					median(x.times))
			}
		}
	}
	p.judge(all)
	if p.standing == within {
		return nil
	}
	// As the best of several may be so by chance, those that seem better take turns with the choice again.
	again := all[:1:1]
	for _, x := range all[1:] {
		gain, _, _ := ratio(all[0].times, x.times)
		if x.name == p.chosen || !x.out && gain > tuneMargin {
			again = append(again, x)
		}
	}
	if err := t.rounds(again, confirmRounds); err != nil {
		return err
	}
	p.chosen = all[0].used()
	p.judge(again)
	return nil
}

// judge sets the result of a point from the times of contenders, the first of which is weft's choice.
func (p *tunePoint) judge(all []*contender) {
	auto := slices.Clone(all[0].times)
	var best *contender
	for _, x := range all[1:] {
		switch {
		case x.name == p.chosen: // the same way, so each round has two times of it
			for i := range min(len(auto), len(x.times)) {
				auto[i] = (auto[i] + x.times[i]) / 2
			}
		case len(x.times) > 0 && (best == nil || median(x.times) < median(best.times)):
			best = x
		}
	}
	p.took = median(auto)
	p.best, p.fastest, p.gain, p.low, p.high, p.standing = p.chosen, p.took, 1, 1, 1, within
	if best == nil {
		return
	}
	gain, low, high := ratio(auto, best.times)
	if gain <= tuneMargin {
		return
	}
	p.best, p.fastest, p.gain, p.low, p.high = best.name, median(best.times), gain, low, high
	p.standing = unclear
	if low > tuneMargin {
		p.standing = slower
	}
}

// ratio returns the median of how many times as long one way takes as another in the same round, and an
// interval that has the true median in 95 % of all cases, for whatever distribution of the times.
func ratio(of, to []float64) (middle, low, high float64) {
	var all []float64
	for i := range min(len(of), len(to)) {
		all = append(all, of[i]/to[i])
	}
	if len(all) == 0 {
		return 1, 1, 1
	}
	slices.Sort(all)
	cut := leftOut(len(all))
	return median(all), all[cut], all[len(all)-1-cut]
}

// leftOut returns how many of n figures, on each side, the interval of their median leaves out. The k lowest
// lie all above the true median as often as fewer than k+1 of n coins show heads, at most in 2.5 % of all
// cases; of fewer than 6 figures, too often even for k = 0.
func leftOut(n int) (k int) {
	likely, each := 0.0, math.Exp2(-float64(n)) // of at most, and of exactly, so many heads
	for heads := 0; ; heads++ {
		if likely += each; likely > 0.025 {
			return max(heads-1, 0)
		}
		each *= float64(n-heads) / float64(heads+1)
	}
}

// rounds measures contenders anew, in turn, in alternating direction.
func (t *tuner) rounds(all []*contender, rounds int) error {
	for _, x := range all {
		x.times = nil
	}
	for round := range rounds {
		order := slices.Clone(all)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, x := range order {
			if x.out {
				continue
			}
			took, err := x.measure(t.slice / tuneRounds)
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
	count, product, maxGain := [slower + 1]int{}, 0.0, 1.0
	for i := range t.points {
		p := &t.points[i]
		count[p.standing]++
		product += math.Log(p.gain)
		maxGain = max(maxGain, p.gain)
	}
	n := len(t.points)
	t.out.printf("# The choice is within 10 %% of the best at %d of %d points, slower at %d, unclear at %d; "+
		"the best gains %.2f in the mean, %.2f at most.\n", count[within], n, count[slower], count[unclear],
		math.Exp(product/float64(max(n, 1))), maxGain)
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
		if p.standing != slower || p.name == messageName { // for messages there are no rules
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
