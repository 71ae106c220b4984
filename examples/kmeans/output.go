package main

import (
	"errors"
	"os"
	"strconv"

	"github.com/weft-mpi/weft/mpi"
	"github.com/weft-mpi/weft/mpi/file"
)

// write writes the labels of the rank's points, one a line, behind those of the ranks before it.
func write(world *mpi.Comm, name string, labels []int32) error {
	f, err := file.Open(world, name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	var lines []byte
	for _, label := range labels {
		lines = append(strconv.AppendInt(lines, int64(label), 10), '\n')
	}
	return errors.Join(file.WriteOrdered(f, lines), f.Close())
}
