package mpi

import (
	"cmp"
	"fmt"
	"slices"
)

// Split makes one communicator per color (MPI 4.1, 7.4.2). It contains the ranks that pass the color, ordered
// by key; ranks with equal keys keep their order. A rank that passes Undefined gets nil. Split is collective:
// all ranks of the communicator call it, and it blocks until they have agreed. A color is 0 or more, or
// Undefined; if any rank passes another value, all ranks get ErrArg.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.failColl("Split", err)
	}
	child, err := c.split(color, key)
	if err != nil {
		return nil, c.failColl("Split", err)
	}
	return child, nil
}

func (c *Comm) split(color, key int) (*Comm, error) {
	s := c.newCompoundCall()
	all := make([]uint64, 2*c.size) // color and key of each rank
	if err := s.allgather([]uint64{uint64(color), uint64(key)}, all); err != nil {
		return nil, err
	}
	colorOf := func(rank int) int { return int(all[2*rank]) }
	keyOf := func(rank int) int { return int(all[2*rank+1]) }
	var ranks []int
	for rank := range c.size {
		if w := colorOf(rank); w < 0 && w != Undefined {
			return nil, fmt.Errorf("%w: rank %d passes color %d; a color is 0 or more, or Undefined",
				ErrArg, rank, w)
		}
		if colorOf(rank) == color {
			ranks = append(ranks, rank)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	if color == Undefined {
		ranks = nil
	}
	child, err := s.finish(ranks)
	if child != nil {
		child.SetName(fmt.Sprintf("%s[%d]", child.Name(), color))
	}
	return child, err
}

// finish agrees on an id and makes the communicator of some ranks of the calling one, in this order. It is
// nil at other ranks.
func (x *compoundCall) finish(ranks []int) (*Comm, error) {
	id, err := x.agree()
	if err != nil {
		return nil, err
	}
	c := x.comm
	rank := slices.Index(ranks, c.rank)
	if rank < 0 {
		c.job.ids.Refuse(id) // other ranks use it, and none of their communicators has this rank
		return nil, nil
	}
	if len(ranks) == c.size && slices.IsSorted(ranks) {
		return c.job.newComm(c.e, c.childName(id), id, rank, c.members), nil
	}
	world := make([]int32, len(ranks))
	for i, r := range ranks {
		world[i] = int32(c.worldRank(r))
	}
	return c.job.newComm(c.e, c.childName(id), id, rank, newMembers(world)), nil
}
