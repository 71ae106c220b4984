// Package inprocess is how package mpitest makes ranks that are goroutines of one process. Such a rank has a
// Place, which its context carries; Init and Run of package mpi take from there what a rank otherwise takes
// from its process.
package inprocess

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
	"github.com/weft-mpi/weft/transport"
)

// Place is the environment of a rank that is a goroutine, which otherwise its process provides.
type Place struct {
	Wire     *wireup.Job
	Device   transport.Device // belongs to the rank from Init on; nil for those that the settings name
	Settings setting.Values   // in place of the environment
	Out      io.Writer        // in place of standard error; takes whole lines, from any goroutine
	Exit     func(code int)   // in place of os.Exit; does not return
	// schedules the goroutines of all ranks, so that a run can be repeated; nil for none
	Turns   engine.Turns
	Tell    func(engine.Event)                     // as in engine.Hook
	Decided func(number int) (source int, ok bool) // as in engine.Config

	mu   sync.Mutex
	rank Rank // nil before Init or Run
}

// ErrChecked marks the errors of checking mode: the mistakes themselves are written to Place.Out.
var ErrChecked = errors.New("checking mode")

// Rank is the rank that package mpi makes in a Place.
type Rank interface {
	// Fail makes every current and later call of the rank fail with a cause.
	Fail(cause error)

	// Snapshot describes the calls of the rank that are in progress.
	Snapshot() *snapshot.Rank

	// Moves is a number that grows whenever a message of the rank moves.
	Moves() uint64

	// Engine is the rank's; nil before it is there.
	Engine() *engine.Engine

	// Discard releases the resources of a rank that has not completed Finalize.
	Discard(cause error) error
}

type key struct{}

// NewContext returns a context for Init and Run of the rank of a place.
func NewContext(ctx context.Context, p *Place) context.Context {
	return context.WithValue(ctx, key{}, p)
}

// FromContext returns the place of the rank whose context it is; nil for that of a process.
func FromContext(ctx context.Context) *Place {
	p, _ := ctx.Value(key{}).(*Place)
	return p
}

// Rank returns the rank of the place; nil if there is none yet.
func (p *Place) Rank() Rank { return p.RankOr(nil) }

// jobs counts the jobs of this process that have ranks in Places.
var jobs atomic.Int32

// Begin notes that a job has ranks in Places until end is called.
func Begin() (end func()) {
	jobs.Add(1)
	return func() { jobs.Add(-1) }
}

// Here reports whether the caller may be a rank in a Place, for messages.
func Here() bool { return jobs.Load() > 0 }

// RankOr returns the rank of the place, which create makes if there is none yet.
func (p *Place) RankOr(create func() Rank) Rank {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rank == nil && create != nil {
		p.rank = create()
	}
	return p.rank
}
