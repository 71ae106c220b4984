package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	command := func() { os.Exit(execute(os.Args)) }
	testscript.Main(m, map[string]func(){"weft": command, "mpirun": command, "mpiexec": command})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		Setup: func(e *testscript.Env) error {
			// Building the test's Go programs needs the machine's caches, not the script's empty home.
			for _, name := range []string{"GOCACHE", "GOMODCACHE", "HOME", "GOFLAGS"} {
				if v, ok := os.LookupEnv(name); ok {
					e.Setenv(name, v)
				}
			}
			// A command built with the race detector would sleep for a second at its end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}
