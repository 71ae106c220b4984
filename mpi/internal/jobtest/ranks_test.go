package jobtest_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/internal/endpointtest"
)

// slowVariable has a rank take its time before it tells why it failed.
const slowVariable = "MPI_TEST_SLOW"

// body registers a program, whose world lives on another endpoint where endpointtest.Variable says so.
func body(name string, run func(ctx context.Context, world *mpi.Comm) error) string {
	return worldBody(name, endpointtest.Body(run))
}

// worldBody registers a program for which only the world itself will do.
func worldBody(name string, run func(ctx context.Context, world *mpi.Comm) error) string {
	return launchertest.Body(name, func() error {
		err := mpi.Run(context.Background(), run)
		if err != nil && os.Getenv(slowVariable) != "" {
			time.Sleep(200 * time.Millisecond)
		}
		return err
	})
}

func TestMain(m *testing.M) { launchertest.Main(m) }

var (
	launch    = launchertest.Launch
	ranks     = launchertest.Succeed
	onFabrics = launchertest.OnFabrics
)

func firstError(errs ...error) error { return cmp.Or(errs...) }

// want fails a rank in which two values differ.
func want[T comparable](what string, got, wanted T) error {
	if got != wanted {
		return fmt.Errorf("%s: got %v, want %v", what, got, wanted)
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
