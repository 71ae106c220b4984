package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// writePart writes the rank's lines where they belong in the output, behind those of the ranks before it. The
// ranks write a file of another name, which becomes the output when all of them have written: the output is
// never incomplete, and may be the input.
func writePart(world *mpi.Comm, name string, mine part) error {
	temporary := name + ".partial"
	f, err := file.Open(world, temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	if world.Rank() == 0 {
		defer os.Remove(temporary) // if it is still there
	}
	err = file.WriteOrdered(f, bytes.Join(mine.lines, nil))
	if err = errors.Join(err, f.Close()); err == nil && world.Rank() == 0 {
		err = os.Rename(temporary, name)
	}
	if err != nil {
		return fmt.Errorf("-output: %w", err)
	}
	return nil
}
