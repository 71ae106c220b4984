package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/mpi"
)

// bodyVariable has this binary run a body as a rank, in place of the tests.
const bodyVariable = "MPI_TEST_BODY"

// slowVariable has a rank take its time before it tells why it failed.
const slowVariable = "MPI_TEST_SLOW"

// bodies are the programs that tests run on several ranks, by name.
var bodies = map[string]func(ctx context.Context, world *mpi.Comm) error{}

// body registers a program.
func body(name string, run func(ctx context.Context, world *mpi.Comm) error) string {
	bodies[name] = run
	return name
}

func TestMain(m *testing.M) {
	if name := os.Getenv(bodyVariable); name != "" {
		run, ok := bodies[name]
		if !ok {
			fmt.Fprintln(os.Stderr, "no such body:", name)
			os.Exit(3)
		}
		if err := mpi.Run(context.Background(), run); err != nil {
			if os.Getenv(slowVariable) != "" {
				time.Sleep(200 * time.Millisecond)
			}
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

// launch runs a body on n ranks and returns when the job is over.
func launch(t *testing.T, n int, name string, env ...string) result {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	var r result
	out, outDone := capture(t, &r.out)
	errs, errDone := capture(t, &r.err)
	r.failure = launcher.Run(t.Context(), launcher.Job{
		Apps:    []launcher.App{{Ranks: n, Program: self, Env: append(env, bodyVariable+"="+name, "GORACE=atexit_sleep_ms=0")}},
		Timeout: 90 * time.Second, Stdin: launcher.InputNone, Out: out, Err: errs,
	})
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

// ranks runs a body that must succeed.
func ranks(t *testing.T, n int, name string) {
	t.Helper()
	r := launch(t, n, name)
	require.NoError(t, r.failure, "standard error:\n%s", r.err)
}

// want fails a rank in which two values differ.
func want[T comparable](what string, got, wanted T) error {
	if got != wanted {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
	}
	return nil
}

// wantError fails a rank in which a call has not failed as it should.
func wantError(what string, got, wanted error) error {
	if !errors.Is(got, wanted) {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
