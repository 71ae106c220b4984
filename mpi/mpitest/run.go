package mpitest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/program"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport/sim"
)

// Body is what each rank does. Its context ends when another rank fails.
type Body = func(ctx context.Context, world *mpi.Comm) error

// Run runs body as a job of n ranks, and returns when all of them have ended. If anything is wrong, Run says
// so in lines that begin with the rank, and ends the test with FailNow.
//
// Run is called by the goroutine of the test, and not inside another Run or a bubble of package synctest.
func Run(t *testing.T, n int, body Body, opts ...Option) {
	t.Helper()
	o := checkRun(t, "Run", n, body, opts)
	for i := range max(o.runs, 1) {
		runOnce(newJob(t, n, body, o.seed+uint64(i), o))
		switch {
		case t.Failed():
			return
		case t.Skipped():
			t.SkipNow()
		}
	}
}

// checkRun checks the arguments of Run, or of a function like it.
func checkRun(t *testing.T, op string, n int, body Body, opts []Option) options {
	t.Helper()
	if t.Context().Err() != nil {
		panic(fmt.Sprintf("mpitest: %s with the *testing.T of %s, which has ended", op, t.Name()))
	}
	switch {
	case n < 1:
		t.Fatalf("mpitest: %s with %d ranks: a job has at least one", op, n)
	case body == nil:
		t.Fatalf("mpitest: %s without a body", op)
	case program.InBubble():
		t.Fatalf("mpitest: %s inside another Run or synctest.Test: a rank has one job, that of its world", op)
	}
	o := options{seed: *seedFlag, runs: *runsFlag}
	for _, option := range opts {
		option(&o)
	}
	return o
}

// runOnce runs a job, and fails its test if anything is wrong.
func runOnce(j *job) {
	j.t.Helper()
	defer func() {
		j.t.Helper()
		lines := j.failures()
		if len(lines) == 0 {
			return
		}
		if j.seed != defaultSeed {
			again := fmt.Sprintf("the seed was %d: -mpitest.seed=%d uses it again", j.seed, j.seed)
			lines = append(lines, again)
		}
		j.t.Fatal(strings.Join(lines, "\n"))
	}()
	defer j.watchFromOutside()()
	j.play()
}

// job is a job of ranks that are goroutines of a test.
type job struct {
	t     *testing.T
	body  Body
	seed  uint64
	ranks []*rank
	turns *turns
	trace *trace // nil for none

	survives bool // failed ranks

	explored *exploredRun // nil unless all matchings are explored

	// of the bubble
	cancel  context.CancelCauseFunc // ends the ranks
	network *sim.Network
	gaveUp  chan struct{}   // closed when ranks are left behind
	begun   atomic.Int32    // bodies
	begin   chan struct{}   // closed when all have
	before  map[uint64]bool // goroutines that are not the job's
	ended   atomic.Int32    // ranks that have ended
	allDone atomic.Bool     // all have ended; their goroutines may go on

	mu    sync.Mutex
	lines []string // failures that belong to no rank
	cause error    // the first failure, which ends the job
	left  bool     // goroutines are left in the bubble
}

func newJob(t *testing.T, n int, body Body, seed uint64, o options) *job {
	checked := mpi.Config{Settings: map[string]string{"WEFT_CHECK": "on", "WEFT_PASSIVE": "100ms",
		"WEFT_LOG": "error"}}
	if o.kills != nil {
		checked.Settings["WEFT_SURVIVE"] = "on"
	}
	j := &job{t: t, body: body, seed: seed, survives: o.kills != nil, turns: newTurns(seed, n)}
	j.turns.over = o.free
	for number := range n {
		conf := append([]mpi.Config{checked, drawnSettings(seed, number)}, o.config...)
		j.ranks = append(j.ranks, &rank{job: j, number: number, conf: conf, killAt: int64(o.kills[number])})
		j.turns.engines[number].slow = o.slow[number]
	}
	return j
}

// play runs the job in a bubble.
func (j *job) play() {
	defer func() {
		// The bubble says with a panic that goroutines are left in it, which j has said better.
		if p := recover(); p != nil && !j.left {
			panic(p)
		}
	}()
	synctest.Test(j.t, func(*testing.T) { j.live() })
}

// live is the life of the job, in its bubble.
func (j *job) live() {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	j.cancel, j.gaveUp, j.begin = cancel, make(chan struct{}), make(chan struct{})
	j.before = map[uint64]bool{program.GoroutineID(): true}
	for _, g := range j.goroutines() {
		j.before[g.ID] = true
	}
	stopTurns := j.startTurns()
	meeting := wireup.NewMeeting("mpitest", len(j.ranks), func(rank, code int) { j.ranks[rank].aborts(code) })
	meeting.Survives = j.survives
	for _, r := range j.ranks {
		r.place = &inprocess.Place{Wire: meeting.Join(r.number), Device: j.network.Device(),
			Out: &output{rank: r}, Exit: r.exit, Turns: j.turns.engines[r.number], Tell: r.tell}
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
		j.watch(done)
	}()
	select {
	case <-done:
		<-watched
		j.allDone.Store(true)
		stopTurns()
		synctest.Wait()
		j.findGoroutines()
	case <-j.gaveUp:
		stopTurns()
	}
}

// startTurns makes the network, and has the ranks take turns, until what it returns is called.
func (j *job) startTurns() (stop func()) {
	if j.turns.over {
		j.network = sim.NewNetwork(j.seed)
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

// fail notes that a rank has failed, and ends the job. An error that says no more than that the job has ended
// is not told, nor one of a rank that has failed before.
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
	if !errors.Is(err, inprocess.ErrChecked) || len(r.lines) == 0 { // else it has been told
		r.lines = append(r.lines, err.Error())
	}
	// The text alone: what it wraps says nothing about the calls of other ranks, which will wrap it.
	j.end(fmt.Errorf("rank %d has failed: %v", r.number, err))
}

// end ends the job. The lock is held.
func (j *job) end(cause error) {
	if j.cause == nil {
		j.cause = cause
		j.cancel(cause)
	}
}

// failures are the lines that the test fails with, none if all is well.
func (j *job) failures() (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines = append(lines, j.lines...)
	for _, r := range j.ranks {
		for _, line := range r.lines {
			lines = append(lines, fmt.Sprintf("rank %d: %s", r.number, line))
		}
	}
	return lines
}
