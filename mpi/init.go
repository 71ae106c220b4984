package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/topology"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// A process is one rank of one job: its state is here, once.
var (
	process struct {
		mu    sync.Mutex
		stage stage
		world *Comm
	}
	current atomic.Pointer[engine.Engine] // of the world; nil before Init
	ended   atomic.Bool                   // Finalize has begun
	started = time.Now()
)

// stage of a process's life in its job.
type stage uint8

const (
	stageBefore    stage = iota // Init has not been called; left by Init
	stageRunning                // the world is there; left by Finalize
	stageFinalized              // final
)

// job is what a communicator needs of the job it runs in.
type job struct {
	wire       *wireup.Job
	statistics bool // the counters are told at the end
	contexts   contexts
	processors int // of the host that all ranks are on; as many as can be where there are several hosts, or it is not known. All ranks have the same
}

func newJob(wire *wireup.Job, statistics bool) *job {
	j := &job{wire: wire, statistics: statistics, processors: math.MaxInt}
	if _, elsewhere := wire.Neighbours(); !elsewhere {
		if n := topology.Possible(); n > 0 {
			j.processors = n
		}
	}
	j.contexts.init()
	return j
}

func (j *job) abort(code int) { j.wire.Abort(code) }

func initialized() bool { return current.Load() != nil }

// Wtime is a time in seconds since some moment in the past; it never goes back (MPI 4.1, 9.6).
func Wtime() float64 { return time.Since(started).Seconds() }

// deference is how long a rank that fails because another one has failed waits until it ends the job: so the launcher hears first of the rank
// that is the cause.
const deference = 100 * time.Millisecond

// Run is the whole life of a rank: Init, body, Finalize. When ctx ends, every call under way and to come fails with ErrAborted.
// If body fails or panics the whole job is ended; Run returns body's error, and does not return from a panic.
func Run(ctx context.Context, body func(ctx context.Context, world *Comm) error) error {
	world, err := Init(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		world.e.Fail(fmt.Errorf("%w: %w", ErrAborted, context.Cause(ctx)))
	})
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "weft: rank %d panicked: %v\n\n%s", world.rank, p, debug.Stack())
			world.job.abort(2)
			os.Exit(2)
		}
	}()
	if err := body(ctx, world); err != nil {
		if errors.Is(err, ErrProcFailed) {
			time.Sleep(deference)
		}
		world.job.abort(1)
		return err
	}
	return Finalize()
}

// Init joins the job that the launcher started this process for, and returns the world communicator (MPI 4.1, 11.2.1). Without
// a launcher it is a world of one. It blocks until all ranks have come, or ctx ends. It can be called once in a process's life.
func Init(ctx context.Context) (*Comm, error) {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch process.stage {
	case stageRunning:
		return nil, asError("Init", errors.New("called a second time"))
	case stageFinalized:
		return nil, asError("Init", ErrFinalized)
	}
	world, err := join(ctx)
	if err != nil {
		return nil, asError("Init", err)
	}
	process.world, process.stage = world, stageRunning
	current.Store(world.e)
	return world, nil
}

func join(ctx context.Context) (*Comm, error) {
	log, err := logger()
	if err != nil {
		return nil, err
	}
	wait, err := setting.ConnectTimeout.Duration()
	if err != nil {
		return nil, err
	}
	conf := engine.Config{ConnectTimeout: wait, Log: log}
	if err := configureChannels(&conf); err != nil {
		return nil, err
	}
	statistics, err := setting.Statistics.Int(0, 1)
	if err != nil {
		return nil, err
	}
	wire, err := wireup.Join(ctx)
	if err != nil {
		return nil, err
	}
	if conf.SpinFor, err = wire.SpinFor(); err != nil {
		return nil, errors.Join(err, wire.Leave())
	}
	if text := setting.HandlerCores.String(); text != "" {
		if conf.HandlerCores, err = topology.ParseCPUList(text); err != nil {
			return nil, errors.Join(fmt.Errorf("%s=%q: %w", setting.HandlerCores.Name, text, err), wire.Leave())
		}
	}
	if conf.Fabrics, err = newFabrics(log, wire); err != nil {
		return nil, errors.Join(err, wire.Leave())
	}
	conf.Identity, conf.Lookup = wire.Identity, wire.Lookup
	e, err := engine.New(conf)
	if err != nil {
		return nil, errors.Join(err, wire.Leave())
	}
	if err := wire.Publish(ctx, card(e, conf.Fabrics)); err != nil {
		return nil, errors.Join(err, e.Destroy(err), wire.Leave())
	}
	return &Comm{space: &space{
		e: e, name: "world", rank: e.Rank(), size: e.Size(),
		job: newJob(wire, statistics == 1),
	}}, nil
}

func logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(setting.Log.String())); err != nil {
		return nil, fmt.Errorf("%s=%q: %s", setting.Log.Name, setting.Log, setting.Log.Meaning)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

// Finalize ends this rank's part in the job: it returns when every rank has come to it and all that was sent has been taken over
// by its receiver's rank (MPI 4.1, 11.2.2). Requests must be complete before it. No call works after it. If a rank that this one was
// connected with has failed, it does not wait for the others: it releases everything and returns ErrProcFailed.
func Finalize() error {
	process.mu.Lock()
	defer process.mu.Unlock()
	switch process.stage {
	case stageBefore:
		return asError("Finalize", ErrNotInitialized)
	case stageFinalized:
		return asError("Finalize", ErrFinalized)
	}
	process.stage = stageFinalized
	ended.Store(true)
	c := process.world
	if err := c.e.Quiesce(); err != nil {
		return asError("Finalize", errors.Join(err, c.e.Destroy(err), c.job.wire.Leave()))
	}
	if c.job.statistics {
		fmt.Fprint(os.Stderr, table(c.rank, c.e.Stats()))
	}
	// Every rank is on its way out when the barrier is through: only then may connections close.
	if err := c.e.Meet(c.job.wire.Barrier); err != nil {
		return asError("Finalize", errors.Join(err, c.e.Destroy(err), c.job.wire.Leave()))
	}
	return asError("Finalize", errors.Join(c.e.Shutdown(), c.job.wire.Finalize()))
}
