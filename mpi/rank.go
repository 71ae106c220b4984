package mpi

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/observe"
	"github.com/weft-mpi/weft/mpi/internal/start"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// rank is one rank of a job. Its state between Init and Finalize is in the job of its communicators.
type rank struct {
	place *inprocess.Place // the environment of a rank that is a goroutine (mpitest); nil for a process
	mu    sync.Mutex
	stage stage
	world atomic.Pointer[Comm] // nil before Init
}

// process is the rank of this process. Only calls without a communicator, a window or the context of another
// rank use it.
var process rank

// stage is the state of a rank in its job.
type stage uint8

const (
	stageBefore    stage = iota // Init has not been called; left by Init
	stageRunning                // the world exists; left by Finalize
	stageFinalized              // final
)

// rankFor returns the rank to which a context.Context belongs.
func rankFor(ctx context.Context) *rank {
	p := inprocess.FromContext(ctx)
	if p == nil {
		return &process
	}
	return p.RankOr(func() inprocess.Rank { return &rank{place: p} }).(*rank)
}

// running returns the rank's world between Init and Finalize, else nil.
func (r *rank) running() *Comm {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage != stageRunning {
		return nil
	}
	return r.world.Load()
}

// number returns the rank's world rank; NoPeer before Init.
func (r *rank) number() int {
	if c := r.world.Load(); c != nil {
		return c.rank
	}
	return NoPeer
}

// tracing returns the buffer for the rank's trace records; nil if it is not traced.
func (r *rank) tracing() *trace.Buffer {
	if c := r.world.Load(); c != nil {
		return c.job.observer.Tracing()
	}
	return nil
}

// The methods below return the rank's environment: that of its process, or of its place.

func (r *rank) settings() setting.Values {
	if r.place != nil {
		return r.place.Settings.Clone()
	}
	return setting.Environment()
}

func (r *rank) out() io.Writer {
	if r.place != nil {
		return r.place.Out
	}
	return os.Stderr
}

func (r *rank) exit() func(code int) {
	if r.place != nil {
		return r.place.Exit
	}
	return os.Exit
}

func (r *rank) joinJob(ctx context.Context, set setting.Values) (*wireup.Job, error) {
	if r.place != nil {
		return r.place.Wire, nil
	}
	return wireup.Join(ctx, set)
}

func (r *rank) fabrics(j *job, o *start.Options) ([]engine.Fabric, error) {
	if r.place != nil && r.place.Device != nil {
		return []engine.Fabric{{Device: r.place.Device}}, nil
	}
	return o.OpenFabrics(j.wire, func(peer uint32, err error) {
		fmt.Fprintf(j.out, "weft: rank %d ends: rank %d: %v\n", j.wire.Identity.Rank, peer, err)
		if !j.survive {
			j.wire.Abort(1)
		}
		j.exit(1)
	})
}

func (r *rank) reportInit() (*observe.Reporter, error) {
	if r.place != nil {
		return nil, nil
	}
	return observe.ReportInit()
}

func (r *rank) openRecorder() (*recorder.Recorder, error) {
	if r.place != nil {
		return nil, nil
	}
	return observe.OpenRecorder()
}

// The methods below implement inprocess.Rank, for package mpitest.

// Fail makes every current and later call of the rank fail with cause.
func (r *rank) Fail(cause error) {
	if c := r.world.Load(); c != nil {
		c.job.hub.Fail(cause)
	}
}

// Snapshot describes the calls of the rank that are in progress.
func (r *rank) Snapshot() *snapshot.Rank {
	c := r.world.Load()
	if c == nil {
		return &snapshot.Rank{Rank: int(r.place.Wire.Identity.Rank), Size: int(r.place.Wire.Identity.Size),
			Phase: snapshot.Starting, Waits: []snapshot.Wait{{Call: snapshot.Init}}}
	}
	return c.job.observer.Reporter().Snapshot()
}

// Moves returns a number that grows whenever a message of the rank moves.
func (r *rank) Moves() uint64 {
	if c := r.world.Load(); c != nil {
		return c.job.hub.Activity()
	}
	return 0
}

// Engine returns the engine of the rank's first endpoint; nil before it exists.
func (r *rank) Engine() *engine.Engine {
	if c := r.world.Load(); c != nil {
		return c.e
	}
	return nil
}

// Discard releases the resources of a rank that has not completed Finalize.
func (r *rank) Discard(cause error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stage != stageRunning {
		return nil
	}
	r.stage = stageFinalized
	j := r.world.Load().job
	j.end()
	j.observer.Close()
	j.observer.HandOver()
	j.observer.Reporter().Enter(snapshot.Finished)
	return j.hub.Destroy(cause)
}
