package wireup

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/pmi"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
)

// spinFor is longer than a copy of some MiB, and much longer than the 50 µs of waking a rank.
const spinFor = 2 * time.Millisecond

// SpinFor returns how long a waiting rank with a number of cores may poll before it sleeps: spinFor if it has
// a core of its own, 0 if ranks share cores.
func (j *Job) SpinFor(cores int) time.Duration {
	if cores == 0 || j.Together() {
		return 0
	}
	return spinFor
}

// Cores returns the number of cores that this rank may use; 0 if ranks share cores. weft run gives it;
// elsewhere each rank has an equal share of the cores that this process may use. If the number of ranks on
// the host is unknown, it is one core.
func (j *Job) Cores() (int, error) {
	local := j.way.local()
	var cores int
	switch {
	case j.set.IsSet(setting.CoresPerRank):
		var err error
		if cores, err = j.set.Of(setting.CoresPerRank).Int(0, 1<<16); err != nil {
			return 0, err
		}
	case local == 0:
		cores = 1
	default:
		machine, err := topology.Read()
		if err != nil {
			return 0, err
		}
		cores = min(machine.UsableCores(), runtime.GOMAXPROCS(0)) / local
		if !j.Together() {
			cores = max(cores, 1)
		}
	}
	if local > topology.Online() {
		return 0, nil
	}
	return cores, nil
}

// Endpoints returns the number of endpoints of this rank, given the number that the user has set, or 0, and
// the number of its cores. Unless the user has set it, the number is the same at all ranks: weft run gives
// it, or else rank 0, which has one for each of its cores. All ranks call it together.
func (j *Job) Endpoints(ctx context.Context, set, cores int) (int, error) {
	n := set
	if n == 0 {
		n = contextid.EndpointsFor(cores)
	}
	if j.Identity.Size == 1 || j.Together() || j.weft && set > 0 {
		return n, nil
	}
	ctx, cancel := j.untilFailure(ctx)
	defer cancel()
	if !j.weft {
		if j.Identity.Rank == 0 {
			if err := j.way.Put(ctx, pmi.EndpointsKey, strconv.Itoa(n)); err != nil {
				return 0, err
			}
		}
		// Ranks where the user has set the number take part: it may be set for some only.
		if err := j.way.Barrier(ctx); err != nil || set > 0 {
			return n, err
		}
	}
	text, err := j.way.Get(ctx, pmi.EndpointsKey)
	switch {
	case j.weft && errors.Is(err, pmi.ErrNotFound): // from a version that does not put it
		return n, nil
	case err != nil:
		return 0, fmt.Errorf("the number of endpoints of each rank: %w", err)
	}
	if n, err = strconv.Atoi(text); err != nil || n < 1 || n > contextid.MaxEndpoints {
		return 0, fmt.Errorf("the number of endpoints of each rank is %.20q: not from 1 to %d", text,
			contextid.MaxEndpoints)
	}
	return n, nil
}
