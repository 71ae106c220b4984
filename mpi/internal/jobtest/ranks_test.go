package jobtest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// slowVariable has a rank take its time before it tells why it failed.
const slowVariable = "MPI_TEST_SLOW"

// body registers a program.
func body(name string, run func(ctx context.Context, world *mpi.Comm) error) string {
	return launchertest.Body(name, func() error {
		err := mpi.Run(context.Background(), run)
		if err != nil && os.Getenv(slowVariable) != "" {
			time.Sleep(200 * time.Millisecond)
		}
		return err
	})
}

func TestMain(m *testing.M) {
	launchertest.Play()
	// Parallel tests wait nearly all the time, so more of them run at once than there are processors.
	flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	os.Exit(m.Run())
}

// launch runs a body on n ranks and returns when the job is over.
func launch(t *testing.T, n int, name string, env ...string) launchertest.Result {
	t.Helper()
	return launchertest.Run(t, launchertest.Ranks(n, name, env...))
}

// ranks runs a body that must succeed.
func ranks(t *testing.T, n int, name string, env ...string) {
	t.Helper()
	r := launch(t, n, name, env...)
	require.NoError(t, r.Failure, "standard error:\n%s", r.Err)
}

// onFabrics runs a test over every fabric between ranks of a host, which the setting names.
func onFabrics(t *testing.T, test func(t *testing.T, fabric string)) {
	for _, name := range []string{"shm", "tcp"} {
		t.Run(name, func(t *testing.T) { test(t, "WEFT_FABRIC="+name) })
	}
}

// want fails a rank in which two values differ.
func want[T comparable](what string, got, wanted T) error {
	if got != wanted {
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

func wait(r mpi.Request, err error) error {
	if err == nil {
		_, err = r.Wait()
	}
	return err
}

func second[T any](_ T, err error) error { return err }
