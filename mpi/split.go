package mpi

import (
	"cmp"
	"fmt"
	"slices"
)

// Split makes a communicator for each color (MPI 4.1, 7.4.2): its ranks are those that pass this color, in the order of their keys, and among
// equal keys in the order of their ranks here. A rank that passes Undefined gets nil. It is collective: all ranks of the communicator
// call it, and it blocks until they have. A color is 0 or more: if any rank's is not, all of them get ErrArg.
func (c *Comm) Split(color, key int) (*Comm, error) {
	err := c.check()
	var all []choice
	if err == nil {
		all, err = c.choices(choice{color, key})
	}
	for rank := 0; err == nil && rank < len(all); rank++ {
		if w := all[rank].Color; w < 0 && w != Undefined {
			err = fmt.Errorf("%w: rank %d passes the color %d; colors are 0 or more, or Undefined", ErrArg, rank, w)
		}
	}
	var context uint32
	if err == nil {
		context, err = c.newContext()
	}
	if err != nil {
		return nil, c.failColl("Split", err)
	}
	if color == Undefined {
		c.job.contexts.retire(context) // others use the number, and never with this rank
		return nil, nil
	}
	var ranks []int
	for rank, w := range all {
		if w.Color == color {
			ranks = append(ranks, rank)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(all[a].Key, all[b].Key) })
	world := make([]int32, len(ranks))
	for i, rank := range ranks {
		world[i] = int32(c.worldRank(rank))
	}
	c.e.SetGroup(context, world)
	return &Comm{space: &space{
		e: c.e, name: fmt.Sprintf("%s.%d[%d]", c.name, context/2, color), context: context,
		rank: slices.Index(ranks, c.rank), size: len(ranks), members: newMembers(world), job: c.job,
	}}, nil
}

// choice is what a rank passes to Split.
type choice struct{ Color, Key int }

// choices gathers what all ranks pass.
func (c *Comm) choices(mine choice) ([]choice, error) {
	all := make([]choice, c.size)
	if err := Gather(c, []choice{mine}, all, 0); err != nil {
		return nil, err
	}
	return all, Bcast(c, all, 0)
}
