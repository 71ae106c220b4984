package mpi

// members are the ranks of a communicator that are not those of the world: the engine knows ranks of the
// world alone.
type members struct {
	world []int32         // by rank in the communicator
	local map[int32]int32 // the other way
}

func newMembers(world []int32) *members {
	m := &members{world: world, local: make(map[int32]int32, len(world))}
	for i, w := range world {
		m.local[w] = int32(i)
	}
	return m
}

// worldRank is the rank in the world of a rank of the communicator. Wildcards stay as they are.
func (s *commState) worldRank(rank int) int {
	if s.members == nil || rank < 0 {
		return rank
	}
	return int(s.members.world[rank])
}

// localRank is the rank in the communicator of one of its members. ProcNull stays as it is.
func (s *commState) localRank(world int) int {
	if s.members == nil || world < 0 {
		return world
	}
	return int(s.members.local[int32(world)])
}

// isMember tells whether a world rank belongs to the communicator.
func (s *commState) isMember(world int) bool {
	if s.members == nil {
		return uint(world) < uint(s.size)
	}
	_, ok := s.members.local[int32(world)]
	return ok
}
