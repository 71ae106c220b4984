package mpi

import "fmt"

// Create makes a communicator of the group's processes, in the group's order (MPI 4.1, 7.4.2). All ranks of
// the communicator call it, with groups that are equal or have no process in common. A rank that is not in
// its group gets nil.
func (c *Comm) Create(g *Group) (*Comm, error) {
	err := c.check()
	var ranks []int
	if err == nil {
		ranks, err = c.ranksOf(g)
	}
	if err != nil {
		return nil, c.failColl("Create", err)
	}
	child, err := c.newCompoundCall().finish(ranks)
	return child, c.failColl("Create", err)
}

// CreateGroup makes a communicator of the group's processes, in the group's order (MPI 4.1, 7.4.2). Only the
// processes of the group call it. Goroutines that call it at the same time for overlapping groups must use
// different tags.
func (c *Comm) CreateGroup(g *Group, tag int) (*Comm, error) {
	err := c.check()
	if err == nil && uint(tag) > TagUB {
		err = fmt.Errorf("%w: %d; tags are 0 to %d", ErrTag, tag, TagUB)
	}
	if err == nil && g.Rank() < 0 {
		err = fmt.Errorf("%w: this process is not in the group", ErrArg)
	}
	var ranks []int
	if err == nil {
		ranks, err = c.ranksOf(g)
	}
	if err != nil {
		return nil, c.failColl("CreateGroup", err)
	}
	child, err := c.newGroupCompoundCall(ranks, g.Rank(), tag).finish(ranks)
	return child, c.failColl("CreateGroup", err)
}

// ranksOf gives the ranks in the communicator of the group's processes.
func (c *Comm) ranksOf(g *Group) ([]int, error) {
	ranks := make([]int, g.Size())
	for i, world := range g.ranks() {
		if !c.isMember(world) {
			return nil, fmt.Errorf("%w: rank %d of the group (world rank %d) is not in %s", ErrRank, i,
				world, c.Name())
		}
		ranks[i] = c.localRank(world)
	}
	return ranks, nil
}

// SplitShared makes a communicator of the ranks that share memory with this one, in their order (MPI 4.1,
// 7.4.2, MPI_COMM_TYPE_SHARED). Like Split, it is collective.
func (c *Comm) SplitShared() (*Comm, error) {
	if err := c.check(); err != nil {
		return nil, c.failColl("SplitShared", err)
	}
	child, err := c.splitShared()
	return child, c.failColl("SplitShared", err)
}

func (c *Comm) splitShared() (*Comm, error) {
	s := c.newCompoundCall()
	hosts, err := s.hosts()
	if err != nil {
		return nil, err
	}
	var ranks []int
	for rank, host := range hosts {
		if host == hosts[c.rank] {
			ranks = append(ranks, rank)
		}
	}
	return s.finish(ranks)
}

// hosts numbers the hosts of the communicator's ranks, in the order of the lowest rank on each.
func (x *compoundCall) hosts() ([]int, error) {
	all := make([]uint64, x.size())
	if err := x.allgather([]uint64{x.comm.job.host}, all); err != nil {
		return nil, err
	}
	numbers := map[uint64]int{}
	hosts := make([]int, len(all))
	for rank, host := range all {
		if _, ok := numbers[host]; !ok {
			numbers[host] = len(numbers)
		}
		hosts[rank] = numbers[host]
	}
	return hosts, nil
}
