// Package launchertest has the common parts of tests that run jobs. A job's ranks are the test binary itself,
// started again: so a test needs only `go test`, and ranks can call any function of the test's package,
// exported or not.
//
// A package whose tests run jobs registers what its ranks do with [Body], in variables of the package, and
// has a TestMain that begins with [Play], as [Main] does. A test then makes a job of [Ranks] and runs it:
//
//	var hello = launchertest.Body("hello", func() error { … })
//
//	func TestMain(m *testing.M) {
//		launchertest.Play()
//		os.Exit(m.Run())
//	}
//
//	func TestHello(t *testing.T) {
//		r := launchertest.Run(t, launchertest.Ranks(4, hello))
//		require.NoError(t, r.Failure, r.Err)
//	}
package launchertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/launcher"
)

// variable has a test binary play a body in place of its tests.
const variable = "LAUNCHERTEST_BODY"

// errorsVariable names the folder in which a rank leaves the error of its body.
const errorsVariable = "LAUNCHERTEST_ERRORS"

// timeout is how long a job may take on a busy machine.
const timeout = 4 * time.Minute

var bodies = map[string]func() error{}

// Body registers what a rank does, and returns the name, by which Ranks and Environ know it. It is for
// variables of a package: a body that a test registers is there in the test's own process alone.
func Body(name string, run func() error) string {
	if bodies[name] != nil {
		panic("launchertest: two bodies are called " + name)
	}
	bodies[name] = run
	return name
}

// played is set once Play has been called: without it, each rank, and the watchdog, would run the tests.
var played bool

// checkPlayed returns an error, with what to write, if Play has not been called.
func checkPlayed() error {
	if played {
		return nil
	}
	return errors.New("launchertest: the ranks of a job are this test binary, and without " +
		"launchertest.Play they would run its tests; add to a _test.go file of the package:\n\n" +
		"\tfunc TestMain(m *testing.M) {\n\t\tlaunchertest.Play()\n\t\tos.Exit(m.Run())\n\t}\n")
}

// Play returns where tests are to be run. In a process that Environ has made a rank it plays the body and
// exits: with status 0, with 1 and the error on standard error, or with 3 where there is no such body.
func Play() {
	played = true
	launcher.Watchdog()
	name, is := os.LookupEnv(variable)
	if !is {
		return
	}
	run, ok := bodies[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no such body:", name)
		os.Exit(3)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if folder := os.Getenv(errorsVariable); folder != "" {
			_ = os.WriteFile(filepath.Join(folder, strconv.Itoa(os.Getpid())), []byte(err.Error()), 0o600)
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// Main is TestMain of tests that wait for jobs nearly all the time.
func Main(m *testing.M) {
	Play()
	testlength.MoreAtOnce()
	os.Exit(m.Run())
}

// Environ returns the variables that make a process of the test binary run a body. With the race detector a
// process would sleep for a second before it exits.
func Environ(body string) []string {
	return []string{variable + "=" + body, strings.TrimSpace("GORACE=" + os.Getenv("GORACE") +
		" atexit_sleep_ms=0")}
}

// Ranks are n ranks that play a body, with more variables of the environment.
func Ranks(n int, body string, env ...string) launcher.App {
	return launcher.App{Ranks: n, Program: os.Args[0], Env: append(Environ(body), env...)}
}

// Result is the result of a job.
type Result struct {
	Out, Err string // what it wrote to standard output and to standard error
	Failure  error  // of launcher.Run, and the errors of the bodies
}

// Cause is the failure of the rank that ended the job. The test fails if the job ended otherwise.
func (r Result) Cause(t testing.TB) *launcher.Failure {
	t.Helper()
	var f *launcher.Failure
	require.ErrorAs(t, r.Failure, &f, "standard error:\n%s", r.Err)
	return f
}

// Launch runs a body on n ranks, with more variables of the environment, and returns as Run does.
func Launch(t *testing.T, n int, body string, env ...string) Result {
	t.Helper()
	return Run(t, Ranks(n, body, env...))
}

// Succeed is Launch of a job that must succeed.
func Succeed(t *testing.T, n int, body string, env ...string) {
	t.Helper()
	r := Launch(t, n, body, env...)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

// OnFabrics runs a test over every fabric between ranks of a host, which the setting names.
func OnFabrics(t *testing.T, test func(t *testing.T, fabric string)) {
	for _, name := range []string{"shm", "tcp"} {
		t.Run(name, func(t *testing.T) { test(t, "WEFT_FABRIC="+name) })
	}
}

// Run runs a job without input, and returns when it is over and all its output is there. A deadlock ends the
// job. A job that does not end is ended, and standard error has the states of its ranks.
func Run(t testing.TB, apps ...launcher.App) Result {
	t.Helper()
	return run(t, launcher.Job{Apps: apps, Timeout: timeout, Stuck: timeout / 2,
		StuckAction: launcher.AbortStuck})
}

// RunPlaced is Run of a job whose ranks have several endpoints, with completion handlers on their own cores.
// It returns where each of them is.
func RunPlaced(t testing.TB, endpoints int, cores launcher.CQCores, apps ...launcher.App) Result {
	t.Helper()
	return run(t, launcher.Job{Apps: apps, Timeout: timeout, Stuck: timeout / 2,
		StuckAction: launcher.AbortStuck, Endpoints: endpoints, CQCores: cores, ReportBindings: true})
}

// RunSurviving is Run of a job that goes on when ranks fail.
func RunSurviving(t testing.TB, apps ...launcher.App) Result {
	t.Helper()
	return RunSurvivingFor(t, timeout, apps...)
}

// RunAgain is Run of a job that is restarted, at most restarts times, when a rank is lost.
func RunAgain(t testing.TB, restarts int, apps ...launcher.App) Result {
	t.Helper()
	return run(t, launcher.Job{Apps: apps, Timeout: timeout, Restarts: restarts})
}

// RunSurvivingFor is RunSurviving of a job that is ended after a time of its own.
func RunSurvivingFor(t testing.TB, limit time.Duration, apps ...launcher.App) Result {
	t.Helper()
	return run(t, launcher.Job{Apps: apps, Timeout: limit, Survive: true})
}

// Shared makes waiting ranks sleep soon rather than poll: other tests run on the same cores, unknown to the
// job's launcher. A test of ranks that poll sets another number.
const Shared = "WEFT_CORES_PER_RANK=0"

// jobVariable distinguishes the ranks of a job from those of concurrent jobs.
const jobVariable = "LAUNCHERTEST_JOB"

var jobs atomic.Int64

func run(t testing.TB, job launcher.Job) Result {
	t.Helper()
	if err := checkPlayed(); err != nil {
		t.Fatal(err)
	}
	var r Result
	out, outDone := capture(t, &r.Out)
	errs, errDone := capture(t, &r.Err)
	mark, folder := fmt.Sprintf("%s=%d", jobVariable, jobs.Add(1)), t.TempDir()
	if job.Endpoints == 0 { // RunPlaced has cores for its ranks
		job.Env = append(job.Env, Shared)
	}
	job.Apps = slices.Clone(job.Apps)
	for i := range job.Apps {
		job.Apps[i].Env = append(job.Apps[i].Env[:len(job.Apps[i].Env):len(job.Apps[i].Env)], mark,
			errorsVariable+"="+folder)
	}
	defer explain(job.Timeout, mark)()
	job.Stdin, job.Out, job.Err = launcher.InputNone, out, errs
	r.Failure = launcher.Run(t.Context(), job)
	out.Close()
	errs.Close()
	<-outDone
	<-errDone
	if r.Failure != nil {
		r.Failure = withErrors(r.Failure, folder)
	}
	return r
}

// withErrors adds the errors that the bodies have left to a failure.
func withErrors(failure error, folder string) error {
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			failure = fmt.Errorf("%w\n%s", failure, text)
		}
	}
	return failure
}

// capture returns a pipe, and a channel that is closed when all that came through the pipe is in into.
func capture(t testing.TB, into *string) (*os.File, <-chan struct{}) {
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
