package bench

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/launcher"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
)

// worldBody registers what a rank does with the world, under settings.
func worldBody(name string, run func(world *mpi.Comm) error, settings ...string) string {
	return launchertest.Body(name, func() error {
		set(settings)
		return mpi.Run(context.Background(), func(_ context.Context,
			world *mpi.Comm) error {
			return run(world)
		})
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
	resizePatience = 2 * time.Minute
	launchertest.Play()
	os.Exit(m.Run())
}

// group is a number of ranks that run the same.
type group struct {
	ranks int
	body  string
}

// launch runs a job of whose ranks only errors are told, and returns when it is over.
func launch(t *testing.T, groups ...group) launchertest.Result {
	t.Helper()
	var apps []launcher.App
	for _, g := range groups {
		apps = append(apps, launchertest.Ranks(g.ranks, g.body, "WEFT_LOG=error"))
	}
	return launchertest.Run(t, apps...)
}

// requireStatus requires that the job failed with an exit status of a rank.
func requireStatus(t *testing.T, r launchertest.Result, status int) {
	t.Helper()
	require.Equal(t, status, r.Cause(t).ExitStatus(), "standard error:\n%s", r.Err)
}

// told is what ranks have told on standard error, without what the launcher has.
func told(r launchertest.Result) string {
	var ranks string
	for line := range strings.Lines(r.Err) {
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
	for _, b := range All {
		if b.Name == name {
			return b
		}
	}
	panic("no benchmark " + name)
}
