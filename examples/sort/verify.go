package main

import (
	"fmt"
	"hash/fnv"

	"github.com/weft-mpi/weft/mpi"
)

// verify finds out whether the ranks have the lines that they had before, each exactly once, and in order
// from the first line of rank 0 to the last line of the last rank.
func verify(world *mpi.Comm, before, after part) error {
	for i := 1; i < len(after.lines); i++ {
		if compare(after.lines[i-1], after.lines[i]) > 0 {
			return fmt.Errorf("rank %d: line %d of the result, %.60q, is not in order", world.Rank(), i+1,
				after.lines[i])
		}
	}
	if err := verifyEnds(world, after); err != nil {
		return err
	}
	// The sums do not depend on which rank has a line. The lines before are subtracted, so the total must be
	// zero.
	was, is := before.sums(), after.sums()
	for i := range is {
		is[i] -= was[i]
	}
	if err := mpi.Allreduce(world, mpi.InPlace[uint64](), is[:], mpi.Sum[uint64]()); err != nil {
		return err
	}
	if is != [3]uint64{} {
		return fmt.Errorf("rank %d: the result has not the lines of the input: %d lines too many, %d bytes",
			world.Rank(), int64(is[0]), int64(is[1]))
	}
	return nil
}

// sums are the number of the lines, their bytes, and the sum of their hashes.
func (p part) sums() [3]uint64 {
	var s [3]uint64
	h := fnv.New64a()
	for _, line := range p.lines {
		h.Reset()
		h.Write(line)
		s[0]++
		s[1] += uint64(len(line))
		s[2] += h.Sum64()
	}
	return s
}

// ends are a rank's first and last line; empty where it has no lines.
type ends struct{ First, Last []byte }

// verifyEnds finds out whether the ranks' lines are in order from one rank to the next that has any.
func verifyEnds(world *mpi.Comm, mine part) error {
	var e ends
	if n := len(mine.lines); n > 0 {
		e = ends{mine.lines[0], mine.lines[n-1]}
	}
	all, err := mpi.AllgatherValues(world, e)
	if err != nil {
		return err
	}
	previous := -1
	for rank, e := range all {
		if len(e.First) == 0 {
			continue
		}
		if previous >= 0 && compare(all[previous].Last, e.First) > 0 {
			return fmt.Errorf("the first line of rank %d, %.60q, belongs before the last one of rank %d, "+
				"%.60q", rank, e.First, previous, all[previous].Last)
		}
		previous = rank
	}
	return nil
}
