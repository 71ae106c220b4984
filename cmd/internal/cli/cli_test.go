package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/launcher"
)

func TestMain(m *testing.M) {
	launcher.Watchdog()
	testlength.MoreAtOnce()
	command := func() { os.Exit(execute(os.Args)) }
	testscript.Main(m, map[string]func(){"weft": command, "mpirun": command, "mpiexec": command,
		"sleeper": sleeper, "checkpointer": checkpointer,
		"usurper": usurper, "hello": hello, "timeexchanges": timeExchanges})
}

func TestScripts(t *testing.T) {
	machine, err := topology.Read()
	if err != nil {
		t.Fatal(err)
	}
	goCache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	// Those left out read options, and print figures, tables and placements, in jobs as the others start them.
	scripts = slices.DeleteFunc(scripts, func(file string) bool {
		return testing.Short() && slices.Contains([]string{"bench", "bindings", "gopackage", "options", "show", "stucktimer",
			"stuckvalue", "tune"}, strings.TrimSuffix(filepath.Base(file), ".txt"))
	})
	testscript.Run(t, testscript.Params{
		Files: scripts, RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		// [cores:2] holds where a job can have two cores.
		Condition: func(condition string) (bool, error) {
			n, err := strconv.Atoi(strings.TrimPrefix(condition, "cores:"))
			return len(machine.Cores) >= n, err
		},
		Setup: func(e *testscript.Env) error {
			// Building the test's Go programs needs the machine's caches, not the script's empty home.
			for _, name := range []string{"GOMODCACHE", "HOME", "GOFLAGS"} {
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			source, err := os.Getwd()
			if err != nil {
				return err
			}
			e.Setenv("SOURCE", source)
			e.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
			// A command built with the race detector would sleep for a second at its end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			// A processor of each of the first two cores that the scripts may use, and the list of all.
			for i, core := range machine.Cores[:min(2, len(machine.Cores))] {
				e.Setenv(fmt.Sprint("CPU", i), strconv.Itoa(core[0]))
			}
			e.Setenv("CPUS", topology.FormatCPUList(machine.CPUs))
			return nil
		},
	})
}
