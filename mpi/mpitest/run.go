package mpitest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/program"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport/sim"
)

// Body is the function that each rank runs. Its context ends when another rank fails.
type Body = func(ctx context.Context, world *mpi.Comm) error

// Run runs body as a job of n ranks, and returns when all of them have ended. If anything is wrong, Run
// reports it in lines that begin with the rank, and ends the test with FailNow.
//
// Run must be called on the goroutine of the test, and not inside another Run or a bubble of package
// synctest. It panics if t is not the calling test.
func Run(t *testing.T, n int, body Body, opts ...Option) {
	t.Helper()
	if err := Try(t, n, body, opts...); err != nil {
		t.Fatal(err)
	}
}

// Try runs body as Run does, and returns the failure that Run would report: an error of one or more lines, or
// nil. The error is text alone, in which errors.Is does not find the causes. It is for tests of a program's
// reports about its own misuse. Calls on the test itself (FailNow, Errorf, Skip) and data races still fail or
// end the test.
func Try(t *testing.T, n int, body Body, opts ...Option) error {
	t.Helper()
	o, err := chosen(t, "Run", n, body, opts)
	if err != nil {
		return err
	}
	for i := range max(o.runs, 1) {
		err := runOnce(newJob(t, n, body, o.seed+uint64(i), o))
		switch {
		case err != nil || t.Failed():
			return err
		case t.Skipped():
			t.SkipNow()
		}
	}
	return nil
}

// chosen checks the arguments of Run, or of a similar function, and returns the options. It panics if t is
// not the calling test.
func chosen(t *testing.T, op string, n int, body Body, opts []Option) (*options, error) {
	t.Helper()
	switch {
	case program.InBubble():
		return nil, fmt.Errorf("mpitest: %s inside another Run or synctest.Test: a rank has one job, that "+
			"of its world", op)
	case t.Context().Err() != nil:
		panic(fmt.Sprintf("mpitest: %s with the *testing.T of %s, which has ended", op, t.Name()))
	case !program.RunsTest(reflect.ValueOf(t).Pointer()):
		panic(fmt.Sprintf("mpitest: %s with the *testing.T of %s is called by a goroutine that is not its "+
			"own, but a subtest's, a rank's of another Run, or one that the test has started", op, t.Name()))
	case n < 1:
		return nil, fmt.Errorf("mpitest: %s with %d ranks: a job has at least one", op, n)
	case body == nil:
		return nil, fmt.Errorf("mpitest: %s without a body", op)
	}
	if err := misplacedPackage(); err != nil {
		return nil, err
	}
	o := &options{seed: *seedFlag, runs: *runsFlag}
	for _, option := range opts {
		option(o)
	}
	return o, o.check()
}

// runOnce runs a job, and returns its failure.
func runOnce(j *job) error {
	j.t.Helper()
	ended := false
	defer func() {
		// After a data race, package synctest ends the test.
		if err := j.failure(); !ended && err != nil {
			j.t.Helper()
			j.t.Error(err)
		}
	}()
	defer inprocess.Begin()()
	defer j.watchFromOutside()()
	j.play()
	ended = true
	return j.failure()
}

// job is a job of ranks that are goroutines of a test.
type job struct {
	t      *testing.T
	body   Body
	seed   uint64
	real   bool // the ranks are not in a bubble, and communicate over a real fabric
	ranks  []*rank
	turns  *turns
	listen func(rank int, e engine.Event) // gets the events of the engines; nil for none

	survives bool // failed ranks

	loses     *laneLoss // nil for none
	slowLinks [][2]int

	explored *exploredRun // nil unless all matchings are explored

	costs *Network // costs of messages; nil if nothing is measured

	// the bubble's network, if there is one
	network *sim.Network
	cancel  context.CancelCauseFunc // ends the ranks
	gaveUp  chan struct{}           // closed when ranks are left behind
	begun   atomic.Int32            // number of bodies begun
	told    atomic.Uint64           // number of events of its ranks
	begin   chan struct{}           // closed when all have
	before  map[uint64]bool         // goroutines that are not the job's
	bubble  atomic.Value            // its number, a string
	ended   atomic.Int32            // ranks that have ended

	abandoned chan struct{} // closed when the bubble is abandoned, since it cannot end

	mu    sync.Mutex
	lines []string // failures without a rank
	cause error    // the first failure, which ends the job
	left  bool     // goroutines are left in the bubble
}

func newJob(t *testing.T, n int, body Body, seed uint64, o *options) *job {
	settings := map[string]string{"WEFT_CHECK": "on", "WEFT_LOG": "error"}
	if o.fabric != "" {
		settings["WEFT_FABRIC"] = o.fabric
	} else {
		settings["WEFT_PASSIVE"] = "100ms"
	}
	if o.kills != nil {
		settings["WEFT_SURVIVE"] = "on"
	}
	if o.loses != nil {
		settings["WEFT_LANES"] = "2"
	}
	j := &job{t: t, body: body, seed: seed, real: o.fabric != "", costs: o.network, survives: o.kills != nil,
		turns: newTurns(seed, n), abandoned: make(chan struct{})}
	j.loses, j.slowLinks = o.loses, o.slowLinks
	j.turns.over = o.free || j.real || j.costs != nil
	for number := range n {
		conf := append([]mpi.Config{{Settings: settings}, drawnSettings(seed, number)}, o.config...)
		j.ranks = append(j.ranks, &rank{job: j, number: number, conf: conf, killAt: int64(o.kills[number])})
		j.turns.engines[number].slow = o.slow[number]
	}
	return j
}

// play runs the job, in a bubble unless it is real.
func (j *job) play() {
	if j.real {
		j.live()
		return
	}
	over, whole := make(chan struct{}), false
	go func() {
		defer close(over)
		defer func() {
			// The bubble panics if goroutines are left in it, which j has already reported.
			if p := recover(); p != nil && !j.left {
				panic(p)
			}
			whole = whole || j.left
		}()
		synctest.Test(j.t, func(*testing.T) { j.live() })
		whole = true
	}()
	select {
	case <-over:
		if !whole {
			j.t.FailNow() // the race detector has found something
		}
	case <-j.abandoned:
	}
}

// live runs the job in its bubble.
func (j *job) live() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	j.cancel, j.gaveUp, j.begin = cancel, make(chan struct{}), make(chan struct{})
	j.before = map[uint64]bool{program.GoroutineID(): true}
	for _, g := range j.goroutines() {
		j.before[g.ID] = true
	}
	j.bubble.Store(program.Bubble())
	stopTurns := j.startTurns()
	for _, link := range j.slowLinks {
		j.network.Slow(uint32(link[0]), uint32(link[1]), time.Second)
	}
	meeting := wireup.NewMeeting("mpitest", len(j.ranks), func(rank, code int) { j.ranks[rank].aborts(code) })
	meeting.Survives = j.survives
	if j.loses != nil {
		defer j.loseLane(meeting)()
	}
	for _, r := range j.ranks {
		r.place = &inprocess.Place{Wire: meeting.Join(r.number), Out: &output{rank: r}, Exit: r.exit,
			Tell: r.tell}
		if !j.turns.over {
			r.place.Turns = j.turns.engines[r.number]
		}
		if !j.real {
			r.place.Device = j.network.Device()
		}
	}
	if x := j.explored; x != nil {
		for _, r := range j.ranks {
			r.place.Decided = func(number int) (int, bool) { return x.decided(choiceKey{r.number, number}) }
		}
		go x.choose(j)
	}
	var ranks sync.WaitGroup
	for _, r := range j.ranks {
		ranks.Go(func() { r.live(ctx) })
	}
	done, watched := make(chan struct{}), make(chan struct{})
	go func() {
		ranks.Wait()
		close(done)
	}()
	go func() {
		defer close(watched)
		if j.real {
			j.watchReal(done)
		} else {
			j.watch(done)
		}
	}()
	select {
	case <-done:
		<-watched
		stopTurns()
		if j.real {
			j.awaitGoroutines()
		} else {
			synctest.Wait()
		}
		j.findGoroutines()
	case <-j.gaveUp:
		stopTurns()
	}
}

// startTurns makes the network, unless the fabric is real, and makes the ranks take turns, until the returned
// function is called.
func (j *job) startTurns() (stop func()) {
	switch {
	case j.real:
		return func() {}
	case j.turns.over:
		var costs []sim.Option
		if c := j.costs.costs(); c != nil {
			costs = append(costs, sim.WithCosts(*c))
		}
		j.network = sim.NewNetwork(j.seed, costs...)
		return func() {}
	}
	j.network = sim.NewNetwork(j.seed, sim.ManualConnect())
	j.turns.arrived = make(chan struct{}, 1)
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		j.turns.run(over)
	}()
	go func() {
		for j.turns.wait(nil, 0, 0, j.network.Connecting) {
			j.network.Step()
		}
	}()
	return func() {
		close(over)
		<-stopped
	}
}

// fail records that a rank has failed, and ends the job. It ignores errors that are only a consequence of the
// job's end, and errors of a rank that has failed before.
func (j *job) fail(r *rank, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.failed || j.cause != nil && isConsequence(err, j.cause) {
		return
	}
	r.failed = true
	if err == errSkipped {
		j.end(err)
		return
	}
	if !errors.Is(err, inprocess.ErrChecked) || len(r.lines) == 0 { // otherwise it has been reported
		r.lines = append(r.lines, err.Error())
	}
	// Only the text: the errors of other ranks wrap this one, and must not match what it wraps.
	j.end(fmt.Errorf("rank %d has failed: %v", r.number, err))
}

// end ends the job. The lock is held.
func (j *job) end(cause error) {
	if j.cause == nil {
		j.cause = cause
		j.cancel(cause)
	}
}

// failure returns the failure of the test; nil if all is well.
func (j *job) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := slices.Clone(j.lines)
	for _, r := range j.ranks {
		for _, line := range r.lines {
			lines = append(lines, fmt.Sprintf("rank %d: %s", r.number, line))
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if j.seed != defaultSeed && !j.real {
		lines = append(lines, fmt.Sprintf("the seed was %d: -mpitest.seed=%d uses it again", j.seed, j.seed))
	}
	return errors.New(strings.Join(lines, "\n"))
}
