package pool

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/endpointtest"
)

// runs is how many jobs lose workers in TestEachResultComesOnce: go test ./mpi/pool -args -runs 1000.
var runs = flag.Int("runs", 5, "jobs that lose workers")

func TestMain(m *testing.M) {
	launchertest.Play()
	goleak.VerifyTestMain(m)
}

func body(name string, run func(ctx context.Context, c *mpi.Comm) error) string {
	return launchertest.Body(name, func() error { return mpi.Run(context.Background(), endpointtest.Body(run)) })
}

func ranks(t *testing.T, n int, name string, env ...string) {
	t.Helper()
	r := launchertest.Run(t, launchertest.Ranks(n, name, env...))
	require.NoError(t, r.Failure, "%s%s", r.Out, r.Err)
}

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func square(_ context.Context, i int) (int, error) { return i * i, nil }

// uneven takes longer for some tasks.
func uneven(_ context.Context, i int) (int, error) {
	x := 0
	for k := range (i * 7919 % 13) * 2000 {
		x += k
	}
	return i*i + x - x, nil
}

type text struct {
	Words []string
	Count map[string]int
}

var mapsValues = body("maps", func(ctx context.Context, c *mpi.Comm) error {
	for _, f := range []func(context.Context, int) (int, error){square, uneven} {
		for _, n := range []int{0, 1, 2, 5000} {
			next := 0
			for r, err := range Map(ctx, c, count(n), f) {
				if err != nil || r != next*next {
					return fmt.Errorf("result %d: %d, %w", next, r, err)
				}
				next++
			}
			if want := n; c.Rank() == 0 && next != want || c.Rank() > 0 && next > 0 {
				return fmt.Errorf("rank %d: %d results of %d", c.Rank(), next, n)
			}
			seen := make([]bool, n)
			for r, err := range Map(ctx, c, count(n), func(ctx context.Context, i int) ([2]int, error) {
				r, err := f(ctx, i)
				return [2]int{i, r}, err
			}, Unordered()) {
				if i := r[0]; err != nil || seen[i] || r[1] != i*i {
					return fmt.Errorf("result %v, %w", r, err)
				}
				seen[r[0]] = true
			}
			if c.Rank() == 0 && slices.Contains(seen, false) {
				return errors.New("a result is missing")
			}
		}
	}
	// Values that have to be encoded, and long ones.
	lines := func(yield func(string) bool) {
		for i := range 50 {
			if !yield(strings.Repeat("a b ", i*300) + "c") {
				return
			}
		}
	}
	i := 0
	for r, err := range Map(ctx, c, lines, func(_ context.Context, line string) (text, error) {
		t := text{strings.Fields(line), map[string]int{}}
		for _, w := range t.Words {
			t.Count[w]++
		}
		return t, nil
	}) {
		want := map[string]int{"a": i * 300, "b": i * 300, "c": 1}
		if i == 0 {
			want = map[string]int{"c": 1}
		}
		if err != nil || !maps.Equal(r.Count, want) || len(r.Words) != i*600+1 {
			return fmt.Errorf("line %d: %v, %w", i, r.Count, err)
		}
		i++
	}
	if c.Rank() == 0 && i != 50 {
		return fmt.Errorf("%d lines", i)
	}
	for _, err := range Map(ctx, c, count(3), func(context.Context, int) (struct{}, error) { return struct{}{}, nil }) {
		if err != nil {
			return err
		}
	}
	return mpi.Barrier(c)
})

func TestMap(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		ranks(t, n, mapsValues)
	}
}

var fails = body("fails", func(ctx context.Context, c *mpi.Comm) error {
	i := 0
	for r, err := range Map(ctx, c, count(3000), func(_ context.Context, i int) (int, error) {
		switch {
		case i%100 == 7:
			return 0, fmt.Errorf("no result of %d", i)
		case i == 1500:
			panic("bad luck")
		}
		return i, nil
	}) {
		var failed *TaskError
		switch {
		case i%100 == 7 || i == 1500:
			if !errors.As(err, &failed) || failed.Task != i || (c.Size() > 1) != (failed.Rank > 0) {
				return fmt.Errorf("task %d: %w", i, err)
			}
			if i == 1500 && (!strings.Contains(err.Error(), "bad luck") || !strings.Contains(err.Error(), "pool_test.go")) {
				return err
			}
			if i == 7 && !strings.HasSuffix(err.Error(), "no result of 7") {
				return err
			}
		case err != nil || r != i:
			return fmt.Errorf("task %d: %d, %w", i, r, err)
		}
		i++
	}
	// Types that cannot travel.
	n := 0
	for _, err := range Map(ctx, c, count(2), func(context.Context, int) (func(), error) { return nil, nil }) {
		if c.Size() > 1 && (err == nil || !strings.Contains(err.Error(), "type")) {
			return fmt.Errorf("a function as a result: %w", err)
		}
		n++
	}
	if c.Rank() == 0 && n != 2 {
		return fmt.Errorf("%d results that are functions", n)
	}
	return mpi.Barrier(c)
})

func TestErrorsAndPanicsOfTasks(t *testing.T) {
	ranks(t, 1, fails)
	ranks(t, 3, fails)
}

var stops = body("stops", func(ctx context.Context, c *mpi.Comm) error {
	// The sequence has no end; the loop ends. What was taken from it is bounded.
	var taken atomic.Int64
	endless := func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
			taken.Add(1)
		}
	}
	n := 0
	for r, err := range Map(ctx, c, endless, square) {
		if err != nil || r != n*n {
			return fmt.Errorf("result %d: %d, %w", n, r, err)
		}
		if n++; n == 10 {
			break
		}
	}
	under := maxBatch * (1 + maxSlots*cores()*max(1, c.Size()-1))
	if most := int64(ahead*under + maxBatch); taken.Load() > most {
		return fmt.Errorf("%d tasks taken for 10 results, not up to %d", taken.Load(), most)
	}
	// Tasks that wait for the end of the loop do not keep it from ending.
	taken.Store(0)
	for range Map(ctx, c, endless, func(ctx context.Context, i int) (int, error) {
		if i == 0 {
			return i, nil
		}
		<-ctx.Done() // the loop ends in spite of it
		return 0, ctx.Err()
	}) {
		break
	}
	if taken.Load() > 100 {
		return fmt.Errorf("%d tasks taken for a result", taken.Load())
	}
	// The context ends.
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	n = 0
	var last error
	for _, err := range Map(own, c, endless, square) {
		if last = err; err == nil {
			if n++; n == 100 {
				cancel()
			}
		}
	}
	if c.Rank() == 0 && !errors.Is(last, context.Canceled) || c.Rank() > 0 && last != nil {
		return fmt.Errorf("cancelled: %w", last)
	}
	return mpi.Barrier(c)
})

func TestALoopThatEndsEarly(t *testing.T) {
	ranks(t, 1, stops)
	ranks(t, 3, stops)
}

// loses has workers be killed at a task, and checks that each result comes once.
var loses = body("loses", func(ctx context.Context, c *mpi.Comm) error {
	dies := map[int]int{} // at which of its own tasks a rank dies
	for i, at := range strings.Fields(os.Getenv("POOL_DIES")) {
		dies[i+1], _ = strconv.Atoi(at) // 0 for none
	}
	poison, _ := strconv.Atoi(os.Getenv("POOL_POISON"))
	var mine atomic.Int64
	n := 2000
	var options []Option
	if os.Getenv("POOL_UNORDERED") != "" {
		options = append(options, Unordered())
	}
	seen := make([]int, n)
	lost := 0
	for r, err := range Map(ctx, c, count(n), func(_ context.Context, i int) (int, error) {
		done := int(mine.Add(1))
		if c.Rank() > 0 && (done == dies[c.Rank()] || poison > 0 && i == poison) {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return uneven(ctx, i)
	}, options...) {
		if errors.Is(err, ErrLost) {
			lost++
			continue
		}
		if err != nil {
			return err
		}
		i := 0
		for i*i < r {
			i++
		}
		seen[i]++
	}
	if c.Rank() > 0 {
		return nil
	}
	for i, times := range seen {
		if times != 1 && !(i == poison && times == 0 && lost == 1) {
			return fmt.Errorf("task %d: %d results", i, times)
		}
	}
	fmt.Println("all is well", lost)
	return nil
})

func survives(t *testing.T, n int, want string, env ...string) {
	t.Helper()
	r := launchertest.RunSurviving(t, launchertest.Ranks(n, loses, env...))
	require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s%s", r.Out, r.Err)
	require.Contains(t, r.Out, want, r.Err)
}

func TestEachResultComesOnce(t *testing.T) {
	for i := range *runs {
		// The first task of a rank is given out at once; whether it gets another depends on the others.
		env := []string{fmt.Sprintf("POOL_DIES=%d %d %d", i*37%400, 1+i%2, i*59%300)}
		if i%3 == 0 {
			env = append(env, "POOL_UNORDERED=1")
		}
		survives(t, 4, "all is well 0\n", env...)
	}
}

func TestAllWorkersAreLost(t *testing.T) { survives(t, 3, "all is well 0\n", "POOL_DIES=1 100") }

// A task that kills three workers is given up; the other worker goes on.
func TestATaskThatKillsItsWorkers(t *testing.T) {
	survives(t, 5, "all is well 1\n", "POOL_POISON=777")
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	b := bar{to: &out, total: 10, begin: time.Now().Add(-time.Minute)}
	b.show(5, 3)
	b.show(6, 3) // too soon
	b.last(10)
	require.Regexp(t, `^pool: 5 of 10 tasks \(50 %\), 3 workers, 0.0833/s, 1m0s left\npool: 10 tasks in 1m\S+s\n$`,
		out.String())
	require.Equal(t, "pool: 4 tasks, 1 workers, 2/s", line(4, 0, 1, 2*time.Second))
}

// On a terminal a line takes the place of the one before.
func TestProgress_OnATerminal(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer device.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer file.Close()
	require.True(t, newBar(device, 0).terminal, "a device of characters")
	require.False(t, newBar(file, 0).terminal)
	require.False(t, newBar(&bytes.Buffer{}, 0).terminal)

	var out bytes.Buffer
	b := bar{to: &out, terminal: true, total: 4, begin: time.Now().Add(-time.Minute)}
	b.show(1, 1)
	b.shown = b.shown.Add(-time.Second) // a log would have no other line yet
	b.show(2, 1)
	b.last(4)
	const again = `\r\x1b\[K`
	require.Regexp(t, `^`+again+`pool: 1 of 4 \S.* left`+again+`pool: 2 of 4 \S.* left`+again+
		`pool: 4 tasks in 1m\S+s\n$`, out.String())
}

// A sequence without end and a first task that takes long: what waits for its result is bounded, and more
// tasks are taken when there are results that the loop takes.
func TestBackPressure(t *testing.T) {
	endless := func(yield func(int) bool) {
		for i := 0; yield(i); i++ {
		}
	}
	got := 0
	m := newMaster(t.Context(), nil, endless, square, settings{}, func(int, error) bool {
		got++
		return true
	})
	defer m.stop()
	m.workers = []*worker[int]{{rank: 1, cores: 2, size: 1}, {rank: 2, cores: 1, size: 10}}
	const under = 1 + 2*1 + maxSlots*10 // the next task, and those that the workers may have
	var taken []given[int]
	for {
		g, is := m.take(1)
		if !is {
			break
		}
		taken = append(taken, g)
		require.LessOrEqual(t, len(taken), ahead*under+1)
	}
	require.Len(t, taken, ahead*under+1)
	deliver := func(g given[int]) { m.deliver(done[int]{batch: g.batch, results: g.tasks}) }
	for _, g := range taken[1:] {
		deliver(g)
	}
	_, more := m.take(1)
	require.False(t, more, "the first has no result")
	deliver(taken[0])
	require.Equal(t, len(taken), got)
	_, more = m.take(1)
	require.True(t, more)
}

// Each worker has as many tasks under way at once as it has cores, and no more.
var onAllCores = body("all cores", func(ctx context.Context, c *mpi.Comm) error {
	var under atomic.Int64
	all := make(chan struct{}) // closed when as many as there are cores are under way
	var once sync.Once
	tasks := 300 * max(1, c.Size()-1)
	n := 0
	for _, err := range Map(ctx, c, count(tasks), func(context.Context, int) (int, error) {
		now := under.Add(1)
		defer under.Add(-1)
		if now == 3 {
			once.Do(func() { close(all) })
		}
		<-all
		runtime.Gosched() // while others begin
		if now = under.Load(); now > 3 {
			return 0, fmt.Errorf("%d tasks at once on 3 cores", now)
		}
		return 0, nil
	}) {
		if err != nil {
			return err
		}
		n++
	}
	if c.Rank() == 0 && n != tasks {
		return fmt.Errorf("%d results", n)
	}
	return mpi.Barrier(c)
})

func TestTasksOnAllCores(t *testing.T) {
	ranks(t, 1, onAllCores, "GOMAXPROCS=3")
	ranks(t, 3, onAllCores, "GOMAXPROCS=3")
}

// The loops of all workers end with an error when rank 0 is lost, tasks that are under way too.
var losesRank0 = body("loses rank 0", func(ctx context.Context, c *mpi.Comm) error {
	n := 0
	for _, err := range Map(ctx, c, count(1000), func(ctx context.Context, i int) (int, error) {
		if i >= 100 {
			<-ctx.Done() // until the pool ends
		}
		return i, nil
	}) {
		if c.Rank() > 0 {
			if !errors.Is(err, mpi.ErrProcFailed) {
				return err
			}
			fmt.Println("a worker's loop has ended")
			return nil
		}
		if n++; n == 20 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	return errors.New("the loop has ended without an error")
})

func TestRank0IsLost(t *testing.T) {
	r := launchertest.RunSurviving(t, launchertest.Ranks(3, losesRank0))
	require.Equal(t, launcher.RanksLost, r.Cause(t).How, "%s%s", r.Out, r.Err)
	require.Equal(t, 2, strings.Count(r.Out, "a worker's loop has ended\n"), "%s%s", r.Out, r.Err)
}

func FuzzDecode(f *testing.F) {
	parts, err := encode(batch{3, 2, 5}, []int32{1, 2}, []failure{{1, "x"}})
	require.NoError(f, err)
	f.Add(bytes.Join(parts, nil))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		head, values, failures, err := decode[int32](b)
		if err == nil && (len(values) != head.count || len(failures) > 0 && failures[0].At >= head.count) {
			t.Fatal(head, values, failures)
		}
		decode[text](b)
	})
}
