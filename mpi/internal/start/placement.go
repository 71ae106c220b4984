package start

import (
	"context"
	"math"

	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// Placement is where the ranks of the world are, as far as the choice of algorithms needs it. All ranks have
// the same: it comes from the launcher and from settings, and not from what a rank finds out by itself.
type Placement struct {
	Inside  coll.Fabric // what carries messages inside a host
	Between coll.Fabric // and elsewhere
	Hosts   []int       // of each rank, from 0; nil if there is one, or it is not known
	// of the host that all ranks are on; as many as can be where there are several hosts, or it is not known
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
