// Filebench measures package file: the ranks write and read a file together, in two patterns, and each
// pattern is compared with what programs do without the package, in the same run and on the same file system.
//
//	weft run -n 8 ./mpi/file/filebench -dir /scratch
//
// In the pattern "interleaved", blocks of -block bytes go round the ranks. It is compared with ranks that
// write and read each block by a call of its own. In the pattern "contiguous" each rank has one part of the
// file. It is compared with one rank that writes or reads the whole file in order, 4 MiB at a time. Each
// figure is the best of -turns, in MB/s of all ranks together; the page cache of the system is part of what
// is measured.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

func main() {
	dir := flag.String("dir", os.TempDir(), "`folder` for the file, which is removed at the end")
	size := flag.Int("size", 32, "`MiB` of each rank")
	block := flag.Int("block", 64, "`bytes` of an interleaved block")
	turns := flag.Int("turns", 5, "how often each pattern is written and read")
	flag.Parse()
	log.SetFlags(0)
	log.SetPrefix("filebench: ")
	err := mpi.Run(context.Background(), func(_ context.Context, c *mpi.Comm) error {
		if *size < 1 || *block < 1 || *block > *size<<20 || *turns < 1 {
			return fmt.Errorf("-size %d -block %d -turns %d: must be 1 or more, and a block no larger than "+
				"the size", *size, *block, *turns)
		}
		return measure(c, filepath.Join(*dir, "filebench.data"), *size<<20 / *block, *block, *turns)
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

func measure(c *mpi.Comm, name string, count, block, turns int) error {
	f, err := file.Open(c, name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		defer os.Remove(name)
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
	stream := func(do func([]byte, int64) (int, error)) error {
		if me > 0 {
			return nil
		}
		total := n * len(mine)
		for at := 0; at < total; at += chunk {
			from := at % len(mine)
			if _, err := do(mine[from:min(from+chunk, len(mine), from+total-at)], int64(at)); err != nil {
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
		best := make([]float64, len(pattern))
		for range turns {
			for i, a := range pattern {
				seconds, err := timed(c, a.run)
				if err != nil {
					return fmt.Errorf("%s: %w", a.name, err)
				}
				best[i] = max(best[i], float64(n*len(mine))/1e6/seconds)
			}
		}
		for i, a := range pattern {
			if me == 0 {
				fmt.Printf("%-36s %9.0f MB/s %6.2f ×\n", a.name, best[i], best[i]/best[0])
			}
		}
	}
	return f.Close()
}

// timed returns how long all ranks together take.
func timed(c *mpi.Comm, run func() error) (seconds float64, err error) {
	if err := mpi.Barrier(c); err != nil {
		return 0, err
	}
	begin := mpi.Wtime()
	if err := run(); err != nil {
		return 0, err
	}
	err = mpi.Barrier(c)
	return mpi.Wtime() - begin, err
}
