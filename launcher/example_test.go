package launcher_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/weft-mpi/weft/launcher"
)

// A program that runs jobs: its main function begins with Watchdog, which ends what is left of a job if the
// program is killed.
func ExampleRun() {
	launcher.Watchdog()
	err := launcher.Run(context.Background(), launcher.Job{
		Apps: []launcher.App{{
			Ranks:   2,
			Program: "sh", // or a Go package, as ./solver
			Args:    []string{"-c", "echo rank $WEFT_RANK of $WEFT_SIZE"},
		}},
		Timeout: time.Minute,
		Stdin:   launcher.InputNone,
		Out:     os.Stdout,
		Err:     os.Stderr,
	})
	if err != nil {
		os.Exit(launcher.ExitStatus(err))
	}
	// Unordered output:
	// rank 0 of 2
	// rank 1 of 2
}

// The error of a job in which a rank fails says which one it was, and how it ended.
func ExampleFailure() {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	defer null.Close()
	err = launcher.Run(context.Background(), launcher.Job{
		Apps:  []launcher.App{{Ranks: 1, Program: "true"}, {Ranks: 1, Program: "sh", Args: []string{"-c", "exit 7"}}},
		Stdin: launcher.InputNone,
		Out:   null,
		Err:   null, // gets a line that says the same
	})
	var failure *launcher.Failure
	if errors.As(err, &failure) && failure.How == launcher.Exited {
		fmt.Println("rank", failure.Rank, "exited with status", failure.Status)
	}
	fmt.Println("this program should exit with", launcher.ExitStatus(err))
	// Output:
	// rank 1 exited with status 7
	// this program should exit with 7
}

// A job on two hosts, whose names a hostfile or a command line gives. DryRun only shows where ranks would run.
func ExampleParseHosts() {
	hosts, err := launcher.ParseHosts("node1:4,node2:2")
	if err != nil {
		panic(err)
	}
	for _, h := range hosts {
		fmt.Println(h.Name, h.Slots)
	}
	// Output:
	// node1 4
	// node2 2
}
