// Filebench measures package file: the ranks write and read a file together, in two patterns, and each
// pattern is compared with what programs do without the package, in the same run and on the same file system.
//
//	weft run -n 8 ./mpi/file/filebench -dir /scratch
//
// In the pattern "interleaved", blocks of -block bytes go round the ranks. It is compared with ranks that
// write and read each block by a call of its own. In the pattern "contiguous" each rank has one part of the
// file. It is compared with one rank that has the whole file in memory, and writes or reads it in order, 4
// MiB at a time.
//
// Each figure is the median of -turns: MB/s of all ranks together, processor time of all ranks together per
// byte, and the rate relative to the first way of the pattern in the same turn. The page cache of the system
// is part of what is measured. The script romio compares the collective calls with those of MPICH.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

func main() {
	dir := flag.String("dir", os.TempDir(), "`folder` for the file, which is removed at the end")
	size := flag.Int("size", 32, "`MiB` of each rank")
	block := flag.Int("block", 64, "`bytes` of an interleaved block")
	turns := flag.Int("turns", 5, "how often each pattern is written and read")
	aggregators := flag.Int("aggregators", 0, "`ranks` that read and write for others; 0 is two of each host")
	match := flag.String("match", "", "measure only what has a name that matches this `regexp`")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("filebench: ")
	err := mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error {
		if *size < 1 || *block < 1 || *block > *size<<20 || *turns < 1 {
			return fmt.Errorf("-size %d -block %d -turns %d: must be 1 or more, and a block no larger than "+
				"the size", *size, *block, *turns)
		}
		names, err := regexp.Compile(*match)
		if err != nil {
			return fmt.Errorf("-match: %w", err)
		}
		return measure(c, filepath.Join(*dir, "filebench.data"), *size<<20 / *block, *block, *turns,
			*aggregators, names)
	})
	if err != nil {
		log.Fatal(err)
	}
}

// An access is a way to read or to write the file.
type access struct {
	name string
	run  func() error
}

const chunk = 4 << 20 // of a single stream

func measure(c *mpi.Comm, name string, count, block, turns, aggregators int, names *regexp.Regexp) error {
	f, err := file.Open(c, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		defer os.Remove(name)
	}
	if aggregators != 0 {
		if err := f.SetAggregators(aggregators); err != nil {
			return err
		}
	}
	me, n := c.Rank(), c.Size()
	mine := make([]byte, count*block)
	for i := range mine {
		mine[i] = byte(i*7 + me)
	}
	interleaved := file.Strided(me*block, count, block, n*block)
	whole := file.Range(me*len(mine), len(mine))
	each := func(do func([]byte, int64) (int, error)) error {
		for i := range count {
			if _, err := do(mine[i*block:][:block], int64((i*n+me)*block)); err != nil {
				return err
			}
		}
		return nil
	}
	var all []byte // the whole file, at the rank that streams it
	if me == 0 {
		all = bytes.Repeat(mine, n)
	}
	stream := func(do func([]byte, int64) (int, error)) error {
		for at := 0; at < len(all); at += chunk {
			if _, err := do(all[at:min(at+chunk, len(all))], int64(at)); err != nil {
				return err
			}
		}
		return nil
	}
	readAll := func(where file.Place) error {
		_, err := file.ReadAll(f, where, mpi.Whole(mine))
		return err
	}
	patterns := [][]access{
		{
			{"interleaved write, each by itself", func() error { return each(f.WriteAt) }},
			{"interleaved WriteAll", func() error { return file.WriteAll(f, interleaved, mpi.Whole(mine)) }},
		}, {
			{"interleaved read, each by itself", func() error { return each(f.ReadAt) }},
			{"interleaved ReadAll", func() error { return readAll(interleaved) }},
		}, {
			{"contiguous write, one stream", func() error { return stream(f.WriteAt) }},
			{"contiguous WriteAll", func() error { return file.WriteAll(f, whole, mpi.Whole(mine)) }},
		}, {
			{"contiguous read, one stream", func() error { return stream(f.ReadAt) }},
			{"contiguous ReadAll", func() error { return readAll(whole) }},
		},
	}
	for _, pattern := range patterns {
		pattern = slices.DeleteFunc(pattern, func(a access) bool { return !names.MatchString(a.name) })
		rate, busy, ratio := figures(len(pattern)), figures(len(pattern)), figures(len(pattern))
		for range turns {
			for i, a := range pattern {
				seconds, processor, err := timed(c, a.run)
				if err != nil {
					return fmt.Errorf("%s: %w", a.name, err)
				}
				moved := float64(n * len(mine))
				rate[i] = append(rate[i], moved/1e6/seconds)
				busy[i] = append(busy[i], processor*1e9/moved)
				ratio[i] = append(ratio[i], rate[i][len(rate[i])-1]/rate[0][len(rate[0])-1])
			}
		}
		for i, a := range pattern {
			if me == 0 {
				fmt.Printf("%-36s %9.0f MB/s %7.2f ns/B %6.2f ×\n", a.name, median(rate[i]), median(busy[i]),
					median(ratio[i]))
			}
		}
	}
	return f.Close()
}

// figures are those of each turn, for each of n ways.
func figures(n int) [][]float64 { return make([][]float64, n) }

func median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// timed returns how long all ranks together take, and the processor time that they use.
func timed(c *mpi.Comm, run func() error) (seconds, processor float64, err error) {
	if err := mpi.Barrier(c); err != nil {
		return 0, 0, err
	}
	begin, used := mpi.Wtime(), processorTime()
	if err := run(); err != nil {
		return 0, 0, err
	}
	if err := mpi.Barrier(c); err != nil {
		return 0, 0, err
	}
	seconds = mpi.Wtime() - begin
	processor, err = mpi.AllreduceValue(c, processorTime()-used, mpi.Sum[float64]())
	return seconds, processor, err
}

// processorTime is how many seconds of processor time this process has used.
func processorTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
