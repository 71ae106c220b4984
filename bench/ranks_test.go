package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/mpi"
)

// bodyVariable has this binary run a body as a rank, in place of the tests.
const bodyVariable = "BENCH_TEST_BODY"

// bodies are what tests run on several ranks, by name.
var bodies = map[string]func() error{}

// body registers what a rank does.
func body(name string, run func() error) string {
	bodies[name] = run
	return name
}

// worldBody registers what a rank does with the world, under settings.
func worldBody(name string, run func(world *mpi.Comm) error, settings ...string) string {
	return body(name, func() error {
		set(settings)
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error { return run(world) })
	})
}

// set puts settings such as WEFT_PHASES=640 into the environment of a rank.
func set(settings []string) {
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(bodyVariable); name != "" {
		run, ok := bodies[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such body:", name)
			os.Exit(3)
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// result is what became of a job.
type result struct {
	out, err string
	failure  error
}

// group is a number of ranks that run the same.
type group struct {
	ranks int
	body  string
}

// launch runs a job and returns when it is over.
func launch(t *testing.T, groups ...group) result {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var r result
	out, outDone := capture(t, &r.out)
	errs, errDone := capture(t, &r.err)
	job := launcher.Job{Timeout: time.Minute, Stdin: launcher.InputNone, Out: out, Err: errs}
	for _, g := range groups {
		job.Apps = append(job.Apps, launcher.App{
			Ranks: g.ranks, Program: self,
			Env: []string{bodyVariable + "=" + g.body, "GORACE=atexit_sleep_ms=0", "WEFT_LOG=error"},
		})
	}
	r.failure = launcher.Run(t.Context(), job)
	out.Close()
	errs.Close()
	<-outDone
	<-errDone
	return r
}

func capture(t *testing.T, into *string) (*os.File, <-chan struct{}) {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		b, _ := io.ReadAll(r)
		*into = string(b)
	}()
	return w, done
}

// requireStatus requires that the job failed with an exit status of a rank.
func requireStatus(t *testing.T, r result, status int) {
	t.Helper()
	var failure *launcher.Failure
	require.True(t, errors.As(r.failure, &failure), "the job ended with %v", r.failure)
	require.Equal(t, status, launcher.ExitStatus(r.failure), "standard error:\n%s", r.err)
}

// told is what ranks have told on standard error, without what the launcher has.
func told(r result) string {
	var ranks string
	for line := range strings.Lines(r.err) {
		if !strings.HasPrefix(line, "weft: ") {
			ranks += line
		}
	}
	return ranks
}

// options are the defaults, changed.
func options(change func(o *Options)) Options {
	o := Default
	change(&o)
	return o
}

// find gives a benchmark that must exist.
func find(name string) *Benchmark {
	b, ok := Find(name)
	if !ok {
		panic("no benchmark " + name)
	}
	return b
}
