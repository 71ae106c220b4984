// Poolbench measures what a task costs in package pool and in mpi4py's pool, MPIPoolExecutor, in one run:
// each does empty tasks, in turns.
//
//	go build ./mpi/pool/poolbench
//	./poolbench -weft "weft run -n 4" -mpi4py "mpiexec -n 4 python3 -m mpi4py.futures"
//
// Both commands start four processes, of which one gives out the tasks. pool.Map chooses the length of its
// batches itself. MPIPoolExecutor.map sends tasks one by one unless it is given a chunksize, so that there is
// a row for each of the two. Each figure is the best of -turns.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/pool"
)

//go:embed mpi4py.py
var script []byte

func main() {
	weft := flag.String("weft", "weft run -n 4", "`command` that starts a program of weft")
	mpi4py := flag.String("mpi4py", "mpiexec -n 4 python3 -m mpi4py.futures",
		"`command` that starts a script")
	tasks := flag.Int("tasks", 1_000_000, "`number` of tasks")
	single := flag.Int("single", 20_000, "`number` of tasks that mpi4py sends one by one")
	chunk := flag.Int("chunk", 1000, "`tasks` of a message of mpi4py in the last row")
	turns := flag.Int("turns", 5, "how often each is measured")
	rank := flag.Bool("rank", false, "be a rank: measure package pool once")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("poolbench: ")
	err := fmt.Errorf("-tasks %d -single %d -chunk %d -turns %d: must be 1 or more", *tasks, *single, *chunk,
		*turns)
	switch {
	case min(*tasks, *single, *chunk, *turns) < 1:
	case *rank:
		err = mpi.Run(context.Background(), func(ctx context.Context, c *mpi.Comm) error {
			return measure(ctx, c, *tasks)
		})
	default:
		err = compare(strings.Fields(*weft), strings.Fields(*mpi4py), *tasks, *single, *chunk, *turns)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// measure prints how many tasks a second the ranks do.
func measure(ctx context.Context, c *mpi.Comm, tasks int) error {
	var seconds float64
	for _, n := range []int{100, tasks} { // after the first, all workers have started
		begin, done := mpi.Wtime(), 0
		for _, err := range pool.Map(ctx, c, count(n), empty) {
			if err != nil {
				return err
			}
			done++
		}
		seconds = mpi.Wtime() - begin
		if c.Rank() == 0 && done != n {
			return fmt.Errorf("%d results of %d tasks", done, n)
		}
	}
	if c.Rank() == 0 {
		fmt.Println(float64(tasks) / seconds)
	}
	return nil
}

func count(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

func empty(context.Context, int) (struct{}, error) { return struct{}{}, nil }

// compare runs all commands in turns.
func compare(weft, mpi4py []string, tasks, single, chunk, turns int) error {
	file, err := os.CreateTemp("", "*.py")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(script)
	if err = cmp.Or(err, file.Close()); err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	rows := []struct {
		name    string
		command []string
		best    float64 // tasks/s
	}{
		{"pool.Map", slices.Concat(weft, []string{own, "-rank", "-tasks", strconv.Itoa(tasks)}), 0},
		{"MPIPoolExecutor.map", slices.Concat(mpi4py, []string{file.Name(), strconv.Itoa(single), "1"}), 0},
		{fmt.Sprintf("MPIPoolExecutor.map, chunksize=%d", chunk),
			slices.Concat(mpi4py, []string{file.Name(), strconv.Itoa(tasks), strconv.Itoa(chunk)}), 0},
	}
	for range turns {
		for i := range rows {
			rate, err := run(rows[i].command)
			if err != nil {
				return err
			}
			rows[i].best = max(rows[i].best, rate)
		}
	}
	for i, r := range rows {
		fmt.Printf("%-36s %12.0f tasks/s", r.name, r.best)
		if i > 0 {
			fmt.Printf("  pool.Map does %.1f times as many", rows[0].best/r.best)
		}
		fmt.Println()
	}
	return nil
}

// run runs a command and returns the number that it prints.
func run(command []string) (float64, error) {
	c := exec.Command(command[0], command[1:]...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	rate, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return rate, nil
}
