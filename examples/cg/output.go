package main

import (
	"errors"
	"os"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// write writes a vector for parseVector: each rank its part, behind those of the ranks before it.
func write(world *mpi.Comm, name string, rows int, mine []float64) error {
	f, err := file.Open(world, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	var text []byte
	if world.Rank() == 0 {
		text = appendHeader(text, rows)
	}
	return errors.Join(file.WriteOrdered(f, appendNumbers(text, mine)), f.Close())
}
