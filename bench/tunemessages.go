package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/sharedcopy"
)

// messageName is the name of messages between two ranks among what Tune compares. How they move depends on
// settings of a whole job, so jobs of two ranks measure each way, before the job that prints the results.
const messageName = "Send"

// notAlone is why messages are left out.
const notAlone = messageName + " is left out: settings of a whole job force the ways of messages, so weft " +
	"bench tune has to start its own ranks"

// MessageRanks is the number of ranks of a job that measures messages.
const MessageRanks = 2

// messageWay is a way in which a message can move, and the setting that forces it at all lengths at which it
// exists.
type messageWay struct {
	announced float64 // per cent of the bytes that the receiver fetches; others are copied through the ring
	setting   *setting.Setting
	value     string
}

// messageWays returns the ways over a fabric.
func messageWays(fabric string) []messageWay {
	if fabric == "tcp" {
		return []messageWay{{0, setting.EagerMax, "1G"}, {100, setting.EagerMax, "1"}}
	}
	return []messageWay{{0, setting.CopyCosts, "1s,1ns,1ns"}, {100, setting.CopyCosts, "1ns,1ns,1s"}}
}

// wayName names the way of messages of n bytes of which a part, in per cent, was announced.
func wayName(fabric string, announced float64, n int) string {
	const exceptions = 10 // from time to time, a message goes the other way so that it is measured
	switch {
	case announced < exceptions:
		return "ring"
	case announced < 100-exceptions:
		return "mixed"
	case fabric == "tcp":
		return "announced"
	case n < sharedcopy.Min:
		return "one copy"
	}
	return "both ends"
}

// MessageJobs returns the settings, by name, of the jobs, of MessageRanks, whose reports (Report) Tune reads
// (Beside), in order: in each round one job for what weft chooses and one for each way over a fabric. There
// are none if messages are not to be compared.
func (o *TuneOptions) MessageJobs(fabric string) (jobs []map[string]string) {
	if !o.comparesMessages() {
		return nil
	}
	for range tuneRounds {
		jobs = append(jobs, nil)
		for _, w := range messageWays(fabric) {
			jobs = append(jobs, map[string]string{w.setting.Name: w.value})
		}
	}
	return jobs
}

func (o *TuneOptions) comparesMessages() bool {
	return o.Collectives == nil || slices.Contains(o.Collectives, messageName)
}

// messageLimit returns the part of the limit for messages.
func (o *TuneOptions) messageLimit() time.Duration {
	switch {
	case !o.comparesMessages():
		return 0
	case len(o.wanted()) == 0:
		return o.Limit
	}
	return o.Limit / 4
}

// measureMessages measures messages as one of the two ranks of a job of MessageJobs.
func measureMessages(ctx context.Context, o TuneOptions, by Invocation) error {
	sizes := 1
	for n := o.Min; 2*n <= o.MaxMessage; n *= 2 {
		sizes++
	}
	seconds := o.messageLimit().Seconds() / float64(sizes*len(o.MessageJobs(""))) // as many over each fabric
	b := *messageTimes
	b.measureSize = func(s *session, n int) (measurement, error) { return messageTime(s, n, seconds) }
	own := Default
	own.Min, own.Max, own.Report = o.Min, o.MaxMessage, o.Report
	return b.Run(ctx, own, by, io.Discard)
}

// messageTimes is the benchmark whose reports measureMessages writes.
var messageTimes = &Benchmark{Name: "tune", Ranks: MessageRanks, title: "Messages", spec: &tableSpec{
	columns: []column{sizeColumn, latencyColumn, {name: "announced", unit: "%",
		of: func(c *measurement) float64 { return c.announced }}},
	datatype: "MPI_CHAR", element: 1, min: 1,
}}

// messageTime is latency with as many iterations as take about the given seconds.
func messageTime(s *session, n int, seconds float64) (measurement, error) {
	timed := *s
	timed.Iterations, timed.Warmup = 2, warmUpCalls
	m, err := latency(&timed, n)
	if err != nil {
		return m, err
	}
	if timed.Iterations, err = callsWithin(s.world, seconds, 2*m.value/1e6, 1e5); err != nil {
		return m, err
	}
	ringBefore, fetchedBefore := s.moved()
	m, err = latency(&timed, n)
	ring, fetched := s.moved()
	ring, fetched = ring-ringBefore, fetched-fetchedBefore
	m.announced = 100 * float64(fetched) / float64(ring+fetched)
	return m, err
}

// moved returns the bytes that this rank has sent through its rings, and those that receivers have fetched.
func (s *session) moved() (ring, fetched uint64) {
	for _, ch := range s.world.Stats().Channels {
		ring, fetched = ring+ch.EagerBytes, fetched+ch.RendezvousBytes
	}
	return ring, fetched
}

// messages compares the ways of messages at rank 0, by the reports of earlier jobs.
func (t *tuner) messages() error {
	if !t.comparesMessages() || t.world.Rank() != 0 {
		return nil
	}
	if len(t.Beside) == 0 {
		t.out.printf("# %s\n", notAlone)
		return nil
	}
	if err := t.session.readBesides(); err != nil {
		return err
	}
	var err error
	t.messagePoints, err = t.pointsOf(t.session.besides)
	return err
}

// pointsOf prints and returns the points of messages, from the reports of MessageJobs.
func (t *tuner) pointsOf(reports []*Report) (points []tunePoint, err error) {
	ways := messageWays(t.fabric)
	better := make([]string, len(ways)) // sizes at which each way is
	for row := range reports[0].Rows {
		p := tunePoint{tuned: tuned{name: messageName}, ranks: MessageRanks}
		all, shares := []*contender{{}}, []float64(nil) // first weft's choice
		for range ways {
			all = append(all, &contender{})
		}
		for i, r := range reports {
			n, took, share, err := r.message(row)
			if err != nil {
				return nil, err
			}
			p.bytes = n
			fabric, x := r.Fabrics[0], all[i%len(all)]
			if x == all[0] {
				shares = append(shares, share)
				p.chosen = wayName(fabric, median(shares), n)
			} else {
				x.name = wayName(fabric, ways[i%len(all)-1].announced, n)
				if wayName(fabric, share, n) != x.name {
					continue // there is no such way at this size
				}
			}
			x.times = append(x.times, took)
		}
		if best := t.judge(&p, all); best != nil {
			p.best, p.fastest = best.name, median(best.times)
			better[slices.Index(all, best)-1] += fmt.Sprintf(", %d", p.bytes)
		}
		t.print(&p)
		points = append(points, p)
	}
	for i, w := range ways {
		if better[i] != "" {
			t.out.printf("# %s=%s forces the better way of messages of%s bytes\n", w.setting.Name, w.value,
				better[i][1:])
		}
	}
	return points, nil
}

// message returns the figures of a row of measureMessages.
func (r *Report) message(row int) (n int, took, announced float64, err error) {
	if r == nil || row >= len(r.Rows) || len(r.Fabrics) == 0 {
		return 0, 0, 0, optionErrorf("a report of messages is not complete")
	}
	f, columns := [3]float64{}, messageTimes.spec.columns
	for i := range f {
		var ok bool
		if f[i], ok = r.Rows[row][columns[i].name].(float64); !ok {
			return 0, 0, 0, optionErrorf("a report of messages has no %s", columns[i].name)
		}
	}
	return int(f[0]), f[1], f[2], nil
}
