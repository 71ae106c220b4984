package mpi

import (
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// members maps the ranks of a communicator to world ranks, which the engine uses, and back.
type members struct {
	world []int32         // by rank in the communicator
	local map[int32]int32 // by world rank
}

func newMembers(world []int32) *members {
	m := &members{world: world, local: make(map[int32]int32, len(world))}
	for i, w := range world {
		m.local[w] = int32(i)
	}
	return m
}

// worldRank returns the world rank of a rank of the communicator. Wildcards stay as they are.
func (s *commState) worldRank(rank int) int {
	if s.members == nil || rank < 0 {
		return rank
	}
	return int(s.members.world[rank])
}

// localRank returns the rank in the communicator of a world rank that is a member. ProcNull stays as it is.
func (s *commState) localRank(world int) int {
	if s.members == nil || world < 0 {
		return world
	}
	return int(s.members.local[int32(world)])
}

// isMember reports whether a world rank belongs to the communicator.
func (s *commState) isMember(world int) bool {
	if s.members == nil {
		return uint(world) < uint(s.size)
	}
	_, ok := s.members.local[int32(world)]
	return ok
}

// commPlacement describes where the ranks of a communicator are.
type commPlacement struct {
	once   sync.Once
	hosts  *coll.Hosts // nil unless some of several hosts have several ranks
	fabric coll.Fabric
}

// topology returns the fabric between the ranks of a communicator, their hosts, and the number of CPUs that
// they share; 0 if each has its own.
func (s *commState) topology() (coll.Fabric, *coll.Hosts, int) {
	p := &s.job.placement
	if p.Hosts == nil {
		if s.size <= p.Processors {
			return p.Between, nil, 0
		}
		return p.Between, nil, p.Processors
	}
	s.placement.once.Do(func() {
		of := make([]int, s.size)
		several := false
		for rank := range of {
			of[rank] = p.Hosts[s.worldRank(rank)]
			several = several || of[rank] != of[0]
		}
		if s.placement.fabric = p.Between; !several {
			s.placement.fabric = p.Inside
		}
		if s.placement.hosts = coll.NewHosts(of); s.placement.hosts != nil {
			s.placement.hosts.Inside = p.Inside
		}
	})
	return s.placement.fabric, s.placement.hosts, 0
}
