package chaostest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	seed     = flag.Uint64("chaos.seed", 1, "seed of the first job; each further one has the next")
	jobs     = flag.Int("chaos.jobs", 0, "number of jobs to run; without it one of each fault")
	parallel = flag.Int("chaos.parallel", 6, "jobs at once; most of them wait")
)

func TestMain(m *testing.M) {
	playStarts()
	Play()
	os.Exit(m.Run())
}

func newTestHarness(t *testing.T) Harness {
	t.Helper()
	dir, err := os.MkdirTemp("", "chaostest-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h, err := NewHarness(dir)
	require.NoError(t, err)
	h.Program, err = CopyProgram(os.Args[0], filepath.Join(dir, "ranks"))
	require.NoError(t, err)
	h.Environ = []string{"GORACE=atexit_sleep_ms=0"}
	return h
}

// oneOfEach are the seeds of the first plan of each fault that has two ranks.
func oneOfEach() (seeds []uint64) {
	seen := make(map[Fault]bool)
	for _, f := range faults {
		seen[f] = false
	}
	for seed := uint64(1); len(seeds) < len(seen); seed++ {
		if p := New(seed); p.Ranks == 2 && !seen[p.Fault] {
			seen[p.Fault] = true
			seeds = append(seeds, seed)
		}
	}
	return seeds
}

func TestChaos(t *testing.T) {
	seeds := oneOfEach()
	if *jobs > 0 {
		seeds = nil
		for i := range *jobs {
			seeds = append(seeds, *seed+uint64(i))
		}
	}
	h := newTestHarness(t)
	var all sync.WaitGroup
	next := make(chan uint64)
	for range *parallel {
		all.Go(func() {
			for seed := range next {
				if err := h.Run(New(seed)); errors.Is(err, ErrImpossible) {
					t.Log(err)
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, seed := range seeds {
		next <- seed
	}
	close(next)
	all.Wait()
}

func TestPlansFollowFromTheirSeeds(t *testing.T) {
	for seed := range uint64(1000) {
		p := New(seed)
		require.Equal(t, p, New(seed))
		require.Less(t, p.Victim, p.Ranks)
		require.NotEmpty(t, p.String())
	}
}

// The checks find what is wrong: an outcome that is right, spoiled in one way at a time.
func TestCheckFindsWhatIsWrong(t *testing.T) {
	p := Plan{Seed: 1, Ranks: 2, Fabric: Shm, Fault: Exit, Victim: 1, Moment: AtStep, Status: 7}
	right := func() outcome {
		return outcome{
			status: 7, errs: "weft: rank 1 on host (pid 12, /bin/ranks) exited with status 7\n",
			notes: map[string][]int{"pid.0": {11}, "pid.1": {12}, "pid": {11, 12}, "struck": {12}},
		}
	}
	require.Empty(t, p.check(right()))
	for name, spoil := range map[string]func(*outcome){
		"status":         func(o *outcome) { o.status = 1 },
		"rank":           func(o *outcome) { o.errs = "weft: rank 0 on host (pid 11, /bin/ranks) exited with status 7\n" },
		"no cause":       func(o *outcome) { o.errs = "" },
		"two causes":     func(o *outcome) { o.errs += "weft: rank 0 on host (pid 11, /bin/ranks) exited with status 1\n" },
		"hang":           func(o *outcome) { o.hung = true },
		"left over":      func(o *outcome) { o.left = []string{"process 13 is left"} },
		"did not strike": func(o *outcome) { o.notes["struck"] = nil },
		"wrong bytes":    func(o *outcome) { o.errs += "chaos: step 3: byte 4 of 8 is 1\n" },
	} {
		o := right()
		spoil(&o)
		require.NotEmpty(t, p.check(o), name)
	}

	p.Fault = None
	o := outcome{notes: map[string][]int{"done": {11}}}
	require.Len(t, p.check(o), 2, "a rank and all lines are missing")
}

// The search for what is left finds a process by its environment, and a file.
func TestLeftOverIsFound(t *testing.T) {
	j := &job{plan: Plan{Seed: 1}, dir: t.TempDir()}
	j.notes = filepath.Join(j.dir, "notes")
	temp := filepath.Join(j.dir, "tmp")
	require.NoError(t, os.Mkdir(temp, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(temp, "file"), nil, 0o600))
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"},
		&syscall.ProcAttr{Env: []string{notesVariable + "=" + j.notes}})
	require.NoError(t, err)
	require.Len(t, j.leftOver(temp, 0), 2)
	j.killLeftOver()
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	require.NoError(t, err)
	require.Equal(t, syscall.SIGKILL, status.Signal())
	require.NoError(t, os.Remove(filepath.Join(temp, "file")))
	require.Empty(t, j.leftOver(temp, endsWithin))
}
