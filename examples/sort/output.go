package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/weft-mpi/weft/mpi"
)

// writePart writes the rank's lines where they belong in the output. The ranks write a file of another name,
// which becomes the output when all of them have written: the output is never incomplete, and may be the
// input.
func writePart(world *mpi.Comm, name string, mine part) error {
	// Exscan gives each rank the bytes of the ranks before it. It does not touch the result of rank 0, which
	// so stays 0.
	offset := make([]int64, 1)
	if err := mpi.Exscan(world, []int64{int64(len(mine.text))}, offset, mpi.Sum[int64]()); err != nil {
		return err
	}
	temporary := name + ".partial"
	if world.Rank() == 0 {
		if err := create(temporary); err != nil {
			return fmt.Errorf("-output: %w", err)
		}
		defer os.Remove(temporary) // if it is still there: another rank may fail, too
	}
	// No rank opens the file before it is there, and none renames it before all have written.
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if err := writeAt(temporary, offset[0], mine.lines); err != nil {
		return fmt.Errorf("rank %d: -output: %w", world.Rank(), err)
	}
	if err := mpi.Barrier(world); err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := os.Rename(temporary, name); err != nil {
			return fmt.Errorf("-output: %w", err)
		}
	}
	return nil
}

func create(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// writeAt writes lines from an offset of the file on.
func writeAt(name string, offset int64, lines [][]byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(io.NewOffsetWriter(f, offset), 1<<20)
	for _, line := range lines {
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
