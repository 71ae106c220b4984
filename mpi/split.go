package mpi

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/topology"
)

// Split makes one communicator per color (MPI 4.1, 7.4.2). It contains the ranks that pass the color, ordered
// by key; ranks with equal keys keep their order. A rank that passes Undefined gets nil, of which it must
// call no method. Split is collective: all ranks of the communicator call it, and it blocks until they have
// agreed. A color is 0 or more, or Undefined; if any rank passes another value, all ranks get ErrArg.
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

// finish agrees on an id and makes the communicator of some ranks of the calling one, in this order. It
// returns nil at the other ranks.
func (x *compoundCall) finish(ranks []int) (*Comm, error) {
	id, err := x.agree()
	if err != nil {
		return nil, err
	}
	c := x.comm
	rank := slices.Index(ranks, c.rank)
	if rank < 0 {
		c.job.ids.Refuse(id) // other ranks use the id, for communicators without this rank
		return nil, nil
	}
	if len(ranks) == c.size && slices.IsSorted(ranks) {
		return c.job.newComm(c.childName(id), id, rank, c.members), nil
	}
	world := make([]int32, len(ranks))
	for i, r := range ranks {
		world[i] = int32(c.worldRank(r))
	}
	return c.job.newComm(c.childName(id), id, rank, newMembers(world)), nil
}

// Domain is a part of a machine: ranks inside it share something.
type Domain int

// Domains. Undefined stands for none.
const (
	SameHost   Domain = iota // ranks that share memory
	SameSocket               // ranks on one processor package
	SameNUMA                 // ranks on one NUMA node
	SameL3                   // ranks that share an L3 cache
)

var domainNames = [...]string{"SameHost", "SameSocket", "SameNUMA", "SameL3"}

// String returns the name of the constant.
func (d Domain) String() string {
	if uint(d) < uint(len(domainNames)) {
		return domainNames[d]
	}
	if d == Undefined {
		return "Undefined"
	}
	return fmt.Sprintf("Domain(%d)", int(d))
}

// SplitBy makes one communicator for each domain of a kind, of the ranks inside it, ordered by key; ranks
// with equal keys keep their order (MPI 4.1, 7.4.2, MPI_Comm_split_type with MPI_COMM_TYPE_SHARED and
// MPI_COMM_TYPE_HW_GUIDED). A rank is inside a domain if all processors that the calling thread may run on
// are, as weft run binds them to ranks. A rank that is inside none, because it is not bound or the system
// does not say where its processors are, gets nil, and so does one that passes Undefined as kind. All other
// ranks pass the same kind, or all get ErrArg. Like Split, SplitBy is collective, and blocks until the ranks
// have agreed.
func (c *Comm) SplitBy(kind Domain, key int) (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.failColl("SplitBy", err)
	}
	child, err := c.splitBy(kind, key)
	if err != nil {
		return nil, c.failColl("SplitBy", err)
	}
	return child, nil
}

func (c *Comm) splitBy(kind Domain, key int) (*Comm, error) {
	type place struct{ host, domain, kind, key uint64 }
	domain, inside := kind.ofThisRank()
	mine := []uint64{c.job.host, uint64(domain), uint64(kind), uint64(key)}
	if !inside {
		mine[1] = ^uint64(0)
	}
	s := c.newCompoundCall()
	all := make([]uint64, len(mine)*c.size)
	if err := s.allgather(mine, all); err != nil {
		return nil, err
	}
	at := func(rank int) place {
		w := all[len(mine)*rank:]
		return place{w[0], w[1], w[2], w[3]}
	}
	first := -1 // first rank that passes a kind
	var ranks []int
	for rank := range c.size {
		p := at(rank)
		k := Domain(p.kind)
		switch {
		case k == Undefined:
			continue
		case uint(k) >= uint(len(domainNames)):
			return nil, fmt.Errorf("%w: rank %d passes %v; a Domain is SameHost, SameSocket, SameNUMA, "+
				"SameL3 or Undefined", ErrArg, rank, k)
		case first < 0:
			first = rank
		case p.kind != at(first).kind:
			return nil, fmt.Errorf("%w: rank %d passes %v and rank %d %v", ErrArg, first,
				Domain(at(first).kind), rank, k)
		}
		if inside && p.host == mine[0] && p.domain == mine[1] {
			ranks = append(ranks, rank)
		}
	}
	slices.SortStableFunc(ranks, func(a, b int) int { return cmp.Compare(int(at(a).key), int(at(b).key)) })
	return s.finish(ranks)
}

// ofThisRank returns the number of the domain on this host that the calling thread is inside, or false.
func (d Domain) ofThisRank() (int, bool) {
	switch d {
	case SameHost:
		return 0, true
	case SameSocket:
		return topology.Inside(topology.Socket)
	case SameNUMA:
		return topology.Inside(topology.NUMA)
	case SameL3:
		return topology.Inside(topology.L3)
	}
	return 0, false
}
