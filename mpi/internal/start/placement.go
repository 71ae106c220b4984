package start

import (
	"context"
	"math"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// Placement describes where the ranks of the world are, for the choice of algorithms. It is the same at all
// ranks: it comes from the launcher and from settings, not from observations of a rank.
type Placement struct {
	Inside  coll.Fabric // carries messages inside a host
	Between coll.Fabric // and elsewhere
	Hosts   []int       // host of each rank, from 0; nil if there is only one, or unknown
	// CPUs of the host that all ranks are on; the largest int for several hosts, or if unknown
	Processors int
}

// Placement asks the job where its ranks are.
func (o *Options) Placement(ctx context.Context, wire *wireup.Job) (p Placement, err error) {
	p = Placement{Inside: coll.Shared, Processors: math.MaxInt}
	if o.fabric == "tcp" {
		p.Inside = coll.Loopback
	}
	if _, elsewhere := wire.Neighbors(); elsewhere {
		p.Hosts, err = wire.Hosts(ctx)
		return p, err
	}
	p.Between = p.Inside
	if n := topology.Possible(); n > 0 {
		p.Processors = n
	}
	return p, nil
}
