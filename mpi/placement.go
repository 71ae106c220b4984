package mpi

import (
	"context"
	"math"
	"sync"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// placement is where the ranks of the world are, as far as the choice of algorithms needs it. All ranks have
// the same: it comes from the launcher and from settings, and not from what a rank finds out by itself.
type placement struct {
	inside  coll.Fabric // what carries messages inside a host
	between coll.Fabric // and elsewhere
	hosts   []int       // of each rank, from 0; nil if there is one, or it is not known
	// of the host that all ranks are on; as many as can be where there are several hosts, or it is not known
	processors int
}

func newPlacement(ctx context.Context, wire *wireup.Job, set setting.Values) (p placement, err error) {
	p = placement{inside: coll.Shared, processors: math.MaxInt}
	if set.Of(setting.Fabric).String() == "tcp" {
		p.inside = coll.Loopback
	}
	if _, elsewhere := wire.Neighbors(); elsewhere {
		p.hosts, err = wire.Hosts(ctx)
		return p, err
	}
	p.between = p.inside
	if n := topology.Possible(); n > 0 {
		p.processors = n
	}
	return p, nil
}

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
	if p.hosts == nil {
		if s.size <= p.processors {
			return p.between, nil, 0
		}
		return p.between, nil, p.processors
	}
	s.placement.once.Do(func() {
		of := make([]int, s.size)
		several := false
		for rank := range of {
			of[rank] = p.hosts[s.worldRank(rank)]
			several = several || of[rank] != of[0]
		}
		if s.placement.fabric = p.between; !several {
			s.placement.fabric = p.inside
		}
		if s.placement.hosts = coll.NewHosts(of); s.placement.hosts != nil {
			s.placement.hosts.Inside = p.inside
		}
	})
	return s.placement.fabric, s.placement.hosts, 0
}
