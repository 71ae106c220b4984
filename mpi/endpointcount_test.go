package mpi_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher/launchertest"
	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/mpitest"
)

// usedEndpoints is on how many endpoints communicators can be.
func usedEndpoints(world *mpi.Comm) (int, error) {
	list, err := dups(world, contextid.MaxEndpoints)
	used := map[int]bool{world.Endpoint(): true}
	for _, c := range list {
		used[c.Endpoint()] = true
		err = firstError(err, c.Free())
	}
	return len(used), err
}

// endpointCount prints how many endpoints the ranks have, and how many cores the launcher has given each.
func endpointCount(conf ...mpi.Config) func() error {
	return func() error {
		return mpi.Run(context.Background(), func(_ context.Context, world *mpi.Comm) error {
			n, err := usedEndpoints(world)
			if err == nil {
				_, err = fmt.Printf("%d endpoints, %s cores\n", n, os.Getenv("WEFT_CORES_PER_RANK"))
			}
			return err
		}, conf...)
	}
}

var (
	endpointsByDefault = launchertest.Body("endpoints-by-default", endpointCount())
	endpointsOfProgram = launchertest.Body("endpoints-of-program", endpointCount(mpi.Config{
		Defaults: map[string]string{"WEFT_ENDPOINTS": "5"}}))
)

// TestEndpoint_C1_OneForEachCore: a rank has an endpoint for each of its cores, unless the user or the program
// says otherwise, and all ranks of a job have as many, whoever has started it.
func TestEndpoint_C1_OneForEachCore(t *testing.T) {
	for n := 1; n <= 3; n++ {
		r := launch(t, n, endpointsByDefault, "WEFT_ENDPOINTS=")
		require.NoError(t, r.Failure, r.Err)
		for line := range strings.Lines(r.Out) {
			var endpoints, cores int
			_, err := fmt.Sscanf(line, "%d endpoints, %d cores", &endpoints, &cores)
			require.NoError(t, err, r.Out)
			require.Equal(t, contextid.EndpointsFor(cores), endpoints, "%d ranks", n)
		}
		r = launch(t, n, endpointsOfProgram, "WEFT_ENDPOINTS=")
		require.NoError(t, r.Failure, r.Err)
		require.Equal(t, n, strings.Count(r.Out, "5 endpoints"), "what the launcher works out is no setting of "+
			"the user's:\n%s", r.Out)
	}
}

// TestEndpoint_OneForEachCoreOfRank0: without weft run rank 0 decides. Ranks where the user has said a number
// have that, and the communicators of all ranks are on endpoints that all of them have.
func TestEndpoint_OneForEachCoreOfRank0(t *testing.T) {
	for _, c := range []struct{ zero, one, want string }{
		{"WEFT_CORES_PER_RANK=3 WEFT_ENDPOINTS=", "WEFT_CORES_PER_RANK=1 WEFT_ENDPOINTS=", "3 endpoints"},
		{"WEFT_CORES_PER_RANK=1 WEFT_ENDPOINTS=", "WEFT_CORES_PER_RANK=3 WEFT_ENDPOINTS=", "1 endpoints"},
		{"WEFT_CORES_PER_RANK=3 WEFT_ENDPOINTS=", "WEFT_ENDPOINTS=2", "2 endpoints"},
		{"WEFT_ENDPOINTS=4", "WEFT_CORES_PER_RANK=1 WEFT_ENDPOINTS=", "4 endpoints"},
	} {
		d := newDirect(t, endpointsByDefault)
		one := d.start(1, 2, strings.Fields(c.one)...)
		zero := d.start(0, 2, strings.Fields(c.zero)...)
		require.Contains(t, zero.succeeds(), c.want, "%v", c)
		require.Contains(t, one.succeeds(), c.want, "%v", c)
	}
	// under a launcher that speaks PMI
	for _, p := range begin(t, 2, endpointsByDefault, "WEFT_CORES_PER_RANK=3", "WEFT_ENDPOINTS=").ranks {
		require.Contains(t, <-p.lines, "3 endpoints", p.stderr())
	}
}

// TestEndpoint_OneForEachCoreOfAProcess: ranks that are goroutines of one process share its cores, and a
// program that nobody has started as a rank has all of them.
func TestEndpoint_OneForEachCoreOfAProcess(t *testing.T) {
	t.Setenv("WEFT_ENDPOINTS", "")
	machine, err := topology.Read()
	require.NoError(t, err)
	cores := min(machine.UsableCores(), runtime.GOMAXPROCS(0))
	for n := 1; n <= 3; n++ {
		mpitest.Run(t, n, func(_ context.Context, world *mpi.Comm) error {
			got, err := usedEndpoints(world)
			if err != nil {
				return err
			}
			return want("endpoints", got, contextid.EndpointsFor(cores/n))
		}, mpitest.Fabric("shm"))
	}
	alone := newDirect(t, endpointsByDefault).startAs("WEFT_ENDPOINTS=")
	require.Contains(t, alone.succeeds(), fmt.Sprint(contextid.EndpointsFor(cores), " endpoints"))
}
