package mpi

import (
	"sync"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// commPlacement is where the ranks of a communicator are.
type commPlacement struct {
	once   sync.Once
	hosts  *coll.Hosts // nil unless some of several hosts have several ranks
	fabric coll.Fabric
}

// place tells what carries messages between the ranks of a communicator, how they are on hosts, and how many
// processors they share; 0 if each has one.
func (s *commState) place() (coll.Fabric, *coll.Hosts, int) {
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
