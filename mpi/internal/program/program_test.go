package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOwns(t *testing.T) {
	for function, want := range map[string]bool{
		"main.main":                                                    true,
		"main.(*solver).step":                                          true,
		"example.org/solver.Run":                                       true,
		"example.org/solver/mesh.(*Mesh).Exchange":                     true,
		"github.com/weft-mpi/weft/examples/heat.solve":                 true,
		"github.com/weft-mpi/weft/mpi_test.TestX":                      true,
		"github.com/weft-mpi/weft/mpi/mpitest_test.TestX.func1":        true,
		"github.com/weft-mpi/weft/mpi/mpitest.Run":                     false,
		"github.com/weft-mpi/weft/bench.latency":                       true,
		"github.com/weft-mpi/weft/mpi.Recv[...]":                       false,
		"github.com/weft-mpi/weft/mpi/internal/engine.(*Engine).sleep": false,
		"github.com/weft-mpi/weft/transport/tcp.(*QP).Post":            false,
		"runtime.gopark":                                               false,
		"net/http.Serve":                                               false,
		"os/signal.loop":                                               false,
		"sync.(*Mutex).Lock":                                           false,
	} {
		require.Equal(t, want, Owns(function), function)
	}
}

func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"main.main": "main",
		"solver/mesh.(*Mesh[example.org/x.T]).Exchange": "solver/mesh",
		"example.org/solver%2ev2.Run[...]":              "example.org/solver.v2",
	} {
		require.Equal(t, want, packageOf(function))
	}
}

func TestInModules(t *testing.T) {
	modules := []string{"solver", "example.org/x"}
	for path, want := range map[string]bool{
		"solver": true, "solver/mesh": true, "solver/mesh_test": true, "solver_test": true, "example.org/x/y": true,
		"solvers": false, "net/http": false, "time": false,
	} {
		require.Equal(t, want, inModules(path, modules), path)
	}
}
