package launchertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/weft-mpi/weft/launcher"
)

// exampleVariable makes a test binary one of the ranks of an Example function.
const exampleVariable = "LAUNCHERTEST_EXAMPLE"

// stdout is standard output, which the testing package replaces while an Example runs.
var stdout = os.Stdout

// Example is the whole body of an Example function: it runs main on n ranks, whose output becomes that of the
// Example. The ranks are the test binary, started again for this Example alone, so main may be a closure.
func Example(n int, main func() error) { example(launcher.Job{}, n, main) }

// ExampleSurviving is Example of a job that goes on when ranks fail.
func ExampleSurviving(n int, main func() error) { example(launcher.Job{Survive: true}, n, main) }

func example(job launcher.Job, n int, main func() error) {
	if os.Getenv(exampleVariable) != "" {
		os.Stdout = stdout
		if err := main(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	notices, err := os.CreateTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer notices.Close()
	defer os.Remove(notices.Name())
	job.Apps = []launcher.App{{
		Ranks:   n,
		Program: os.Args[0],
		Args:    []string{"-test.run=^" + exampleName() + "$"},
		Env:     []string{exampleVariable + "=1", Environ("")[1]},
	}}
	job.Timeout, job.Stdin, job.Out, job.Err = timeout, launcher.InputNone, os.Stdout, notices
	job.Env = []string{Shared}
	err = launcher.Run(context.Background(), job)
	var failure *launcher.Failure
	if err == nil || job.Survive && errors.As(err, &failure) && failure.How == launcher.RanksLost {
		return
	}
	fmt.Println("the job failed:", err) // is not the output that the Example must have
	notices.Seek(0, io.SeekStart)
	io.Copy(os.Stdout, notices)
}

// exampleName is the name of the Example function that runs.
func exampleName() string {
	callers := make([]uintptr, 16)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if _, name, found := strings.Cut(f.Function, "_test.Example"); found {
			return "Example" + name
		}
	}
	panic("launchertest: Example is for Example functions of a package whose name ends in _test")
}
