// Command chaos runs jobs that something goes wrong in, and tells which of them did not end as they should. A
// seed names a job.
//
//	go run ./launcher/internal/chaostest/chaos -jobs 5000        # the seeds 1 to 5000
//	go run ./launcher/internal/chaostest/chaos -seed 17 -jobs 1  # one of them again
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/launcher/internal/chaostest"
)

func main() {
	chaostest.Play()
	seed := flag.Uint64("seed", 1, "seed of the first job; each further one has the next")
	jobs := flag.Int("jobs", 300, "number of jobs")
	parallel := flag.Int("parallel", 4, "jobs at once")
	list := flag.Bool("list", false, "print the plans, and run nothing")
	flag.Parse()
	if flag.NArg() > 0 || *jobs < 1 || *parallel < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *list {
		for i := range *jobs {
			fmt.Println(chaostest.New(*seed + uint64(i)))
		}
		return
	}
	failed, impossible, err := run(*seed, *jobs, *parallel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
	fmt.Printf("%d jobs from seed %d on, %d of them wrong, %d not possible here\n", *jobs, *seed, failed,
		impossible)
	if failed > 0 {
		os.Exit(1)
	}
}

func run(seed uint64, jobs, parallel int) (failed, impossible int64, err error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	h, err := chaostest.NewHarness(dir)
	if err != nil {
		return 0, 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	if h.Program, err = chaostest.CopyProgram(self, filepath.Join(dir, "chaos")); err != nil {
		return 0, 0, err
	}
	var next, wrong, skipped atomic.Int64
	var all sync.WaitGroup
	for range parallel {
		all.Go(func() {
			for i := next.Add(1); i <= int64(jobs); i = next.Add(1) {
				switch err := h.Run(chaostest.New(seed + uint64(i-1))); {
				case errors.Is(err, chaostest.ErrImpossible):
					skipped.Add(1)
					fmt.Println(err)
				case err != nil:
					wrong.Add(1)
					fmt.Println(err)
				}
			}
		})
	}
	all.Wait()
	return wrong.Load(), skipped.Load(), nil
}
