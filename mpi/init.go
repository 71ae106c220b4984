package mpi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/mpi/internal/agree"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/observe"
	"github.com/weft-mpi/weft/mpi/internal/program"
	"github.com/weft-mpi/weft/mpi/internal/start"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// job is a rank's state in its job, shared by its communicators.
type job struct {
	wire      *wireup.Job
	log       *slog.Logger
	hub       *engine.Hub
	ids       *contextid.Claims
	comms     *comms
	survive   bool // a failed rank does not end the job
	observer  *observe.Observer
	checker   *checker       // nil unless in checking mode
	choices   coll.Selection // selects the algorithms of collectives
	host      uint64         // equal at processes that share memory, and different at others
	placement start.Placement
	explained sync.Map       // lines that WEFT_COLL=explain has printed, so that a loop prints once
	ended     atomic.Bool    // Finalize has begun
	out       io.Writer      // usually standard error
	exit      func(code int) // does not return
}

func (j *job) abort(code int) {
	j.observer.HandOver()
	j.wire.Abort(code)
}

// endAll ends the job and this rank. It does not return.
func (j *job) endAll(code int) {
	j.abort(code)
	j.exit(code)
}

var started = time.Now()

// Wtime returns the time in seconds since some moment in the past; it never goes back (MPI 4.1, 9.6). The
// first message between two ranks takes milliseconds, because it connects them: measure after an exchange.
func Wtime() float64 { return float64(time.Since(started)) / float64(time.Second) }

// causeFirst is a delay before a rank aborts the job for a failure caused by another rank. It lets the
// launcher see the original failure first.
const causeFirst = 200 * time.Millisecond

// Run is the whole life of a rank: Init, body, Finalize. When ctx ends, every current and later call fails
// with ErrAborted. If body fails, panics or calls runtime.Goexit, the whole job ends; but in a job that
// survives failures (weft run --survive), an error from body loses only this rank. Run returns body's error,
// and does not return after a panic. Each conf changes settings.
func Run(ctx context.Context, body func(ctx context.Context, world *Comm) error, conf ...Config) error {
	if body == nil {
		return asError("Run", fmt.Errorf("%w: no body to run", ErrArg))
	}
	return rankFor(ctx).run(ctx, body, conf)
}

func (r *rank) run(ctx context.Context, body func(ctx context.Context, world *Comm) error,
	conf []Config) error {
	world, err := r.init(ctx, conf)
	if err != nil {
		return err
	}
	world.job.observer.Reporter().Bound(ctx)
	stop := context.AfterFunc(ctx, func() {
		world.job.hub.Fail(fmt.Errorf("%w: %w", ErrAborted, context.Cause(ctx)))
	})
	defer stop()
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			fmt.Fprintf(world.job.out, "weft: rank %d panicked: %v\n\n%s", world.rank, p,
				program.PanicStack(debug.Stack()))
		case !returned:
			fmt.Fprintf(world.job.out,
				"weft: rank %d: the body of Run ended its goroutine: runtime.Goexit, which FailNow of a "+
					"test calls\n", world.rank)
		default:
			return
		}
		world.job.endAll(2)
	}()
	err = body(ctx, world)
	returned = true
	if err != nil && world.job.survive {
		return err // this rank has failed; the others go on
	}
	if err != nil {
		yieldToCause(err)
		world.job.abort(1)
		return err
	}
	if err := r.finalize(); err != nil {
		yieldToCause(err)
		return err
	}
	return nil
}

// yieldToCause waits for causeFirst if an error is the consequence of what another rank has met or done.
// Usually the launcher ends this process meanwhile, so that only the original failure is reported.
func yieldToCause(err error) {
	if errors.Is(err, ErrProcFailed) || errors.Is(err, ErrRevoked) || errors.Is(err, ErrAborted) {
		time.Sleep(causeFirst)
	}
}

// Init joins the job for which the launcher started this process, and returns the world communicator (MPI
// 4.1, 11.2.1). Without a launcher, the ranks find rank 0 at WEFT_COORDINATOR or, if WEFT_SECRET_FILE is set,
// by variables of Slurm, Kubernetes, AWS Batch or torchrun; without these too, the process is a world of one
// rank. Init blocks until all ranks have joined, or ctx ends. It can be called once in a process's life. Each
// conf changes settings.
func Init(ctx context.Context, conf ...Config) (*Comm, error) { return rankFor(ctx).init(ctx, conf) }

func (r *rank) init(ctx context.Context, conf []Config) (*Comm, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == nil && inprocess.Here() && program.InBubble() {
		return nil, asError("Init", errors.New("not with the context of the body, whose rank is in a job "+
			"already"))
	}
	switch r.stage {
	case stageRunning:
		return nil, asError("Init", errors.New("called a second time"))
	case stageFinalized:
		return nil, asError("Init", ErrFinalized)
	}
	reporter, unreachable := r.reportInit()
	world, err := r.join(ctx, conf, reporter != nil)
	if err != nil {
		reporter.Enter(snapshot.Finished)
		return nil, asError("Init", err)
	}
	if unreachable != nil {
		world.job.log.Warn("the launcher cannot ask this rank for its state: reports of a hang, and what "+
			"the rank measures, are without it", "error", unreachable)
	}
	r.stage = stageRunning
	if r.place != nil {
		world.job.observer.Asked()
	} else {
		world.job.observer.Joined(reporter)
	}
	r.world.Store(world) // from here on, package mpitest may call the rank
	world.job.observer.BeginTrace(world.gatherWords)
	return world, nil
}

// gatherWords gathers a word of each rank.
func (c *Comm) gatherWords(mine uint64, all []uint64) error {
	return c.newCompoundCall().allgather([]uint64{mine}, all)
}

// join joins the rank to its job. told reports whether the launcher reports failed ranks.
func (r *rank) join(ctx context.Context, conf []Config, told bool) (*Comm, error) {
	set, err := r.values(conf)
	if err != nil {
		return nil, err
	}
	o, err := start.Read(set, r.out())
	if err != nil {
		return nil, err
	}
	wire, err := r.joinJob(ctx, set)
	if err != nil {
		return nil, err
	}
	log := o.Engine.Log.With("rank", wire.Identity.Rank, "host", hostName())
	o.Engine.Log = log
	// weft's own launcher has printed it already.
	if wire.Identity.Rank == 0 && r.place == nil && os.Getenv("WEFT_JOB") == "" {
		for _, text := range setting.Unknown(os.Environ()) {
			log.Warn(text)
		}
	}
	o.Engine.LauncherReportsFailures = o.Survive && told
	world, err := r.newWorld(ctx, o, wire)
	if err != nil {
		return nil, errors.Join(err, wire.Leave())
	}
	return world, nil
}

// newWorld starts the engine of a rank that has joined its job, and makes the world communicator.
func (r *rank) newWorld(ctx context.Context, o *start.Options, wire *wireup.Job) (_ *Comm, err error) {
	conf := o.Engine
	if conf.Cores, err = wire.Cores(); err != nil {
		return nil, err
	}
	if conf.Endpoints, err = wire.Endpoints(ctx, conf.Endpoints, conf.Cores); err != nil {
		return nil, err
	}
	conf.SpinTime, conf.Together = wire.SpinFor(conf.Cores), wire.Together()
	j := &job{wire: wire, log: conf.Log, comms: &comms{}, choices: o.Choices, survive: o.Survive,
		out: r.out(), exit: r.exit()}
	if conf.Fabrics, err = r.fabrics(j, o); err != nil {
		return nil, err
	}
	conf.Identity, conf.Lookup, conf.PeerLost = wire.Identity, wire.Lookup, wire.PeerLost
	conf.LookupAhead = wire.LookupAhead
	conf.DetectsFailures = wire.SurvivesAlone()
	conf.Revoked, conf.Stopped = j.comms.revoke, j.comms.disableFastPath
	if j.observer, err = observe.New(o.Observe); err != nil {
		return nil, err
	}
	conf.Hook = j.observer.Hook()
	if r.place != nil {
		// Package mpitest schedules the ranks' goroutines deterministically (Turns), and decides which source
		// a receive from any source matches (Decided).
		conf.Turns, conf.Decided = r.place.Turns, r.place.Decided
		conf.Hook = conf.Hook.With(r.place.Tell)
	}
	if o.Check {
		j.checker = newChecker(int(wire.Identity.Rank), j.out)
		j.checker.strict = r.place != nil
		conf.Header = check.HeaderSize
		conf.Unreceived = func(context uint32, source, tag int, head []byte) {
			j.checker.unreceived(j, context, source, tag, head)
		}
	}
	if conf.Recorder, err = r.openRecorder(); err != nil {
		j.log.Warn("the latest events of this rank are lost", "error", err)
	}
	if j.hub, err = engine.NewHub(conf); err != nil {
		return nil, err
	}
	if err := j.enter(ctx, conf.Fabrics, o); err != nil {
		return nil, errors.Join(err, j.hub.Destroy(err))
	}
	j.log.Debug("joined the job", "size", j.hub.Size(), "address", start.Card(j.hub, conf.Fabrics).String(),
		"settings", o.Settings.String(), "spin", conf.SpinTime)
	return j.newComm("world", contextid.World, j.hub.Rank(), nil), nil
}

// enter publishes the addresses of this rank, and passes failures that the job reports to its engines.
func (j *job) enter(ctx context.Context, fabrics []engine.Fabric, o *start.Options) error {
	if err := j.wire.Publish(ctx, start.Card(j.hub, fabrics)); err != nil {
		return err
	}
	e, err := j.hub.Endpoint(0)
	if err != nil {
		return err
	}
	// not a mutex: its holder may sleep
	j.ids = contextid.NewClaims(e.Rank(), e.Size(), j.hub.Endpoints(), e.NewLock(),
		j.hub)
	j.wire.WhenEnded(func(why error) {
		j.hub.Fail(fmt.Errorf("%w: %w", ErrAborted, why))
	}, func(code int, why error) {
		fmt.Fprintf(j.out, "weft: rank %d: %v\n", e.Rank(), why)
		j.exit(code)
	})
	j.wire.WhenFailed(j.hub.PeerFailed)
	if j.wire.SurvivesAlone() {
		e.Recovery.OpenCommunicator(contextid.Finalize, nil)
	}
	if j.host, err = start.Host(); err != nil {
		return err
	}
	if j.placement, err = o.Placement(ctx, j.wire); err != nil {
		return err
	}
	return j.observer.Attach(observe.Rank{Engine: e, Hub: j.hub, Wire: j.wire, Comms: j.comms, Log: j.log,
		Out: j.out,
		End: j.endAll})
}

// whyEnding returns why some rank will not reach Finalize: it has failed, or the launcher ends the job.
func whyEnding(err error) error {
	var failed *engine.PeerError
	if errors.As(err, &failed) {
		return failed
	}
	return fmt.Errorf("%w: %w", ErrAborted, err)
}

// awaitFinalize waits until all ranks that have not failed are in Finalize.
func (j *job) awaitFinalize(world *Comm) error {
	if !j.wire.SurvivesAlone() {
		return j.hub.ExternalBarrier(j.wire.Barrier, j.survive)
	}
	// The launcher's barrier would wait for failed ranks, too.
	if _, err := world.e.Recovery.Agree(contextid.Finalize, agree.Neutral, nil); err != nil {
		return err
	}
	return j.hub.Drain() // this rank still passes the agreement on
}

// Finalize ends this rank's part in the job (MPI 4.1, 11.2.2). It returns when every rank has called it and
// every message that was sent has reached the receiver's rank. Requests must be complete before Finalize. No
// call works after it.
//
// Finalize warns, in one line on standard error, of messages that were never received and requests that were
// never waited for. It drops those messages. Messages of collectives are left where the ranks' calls do not
// match, or were given up.
//
// If a rank that this one was connected to has failed, Finalize does not wait for the other ranks: it
// releases everything and returns ErrProcFailed. In a job that survives failures (weft run --survive), it
// waits instead for the ranks that are left, and returns nil.
func Finalize() error { return process.finalize() }

func (r *rank) finalize() error {
	if c := r.running(); c != nil {
		c.deleteAttributes()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.stage {
	case stageBefore:
		return asError("Finalize", ErrNotInitialized)
	case stageFinalized:
		return asError("Finalize", ErrFinalized)
	}
	r.stage = stageFinalized
	c := r.world.Load()
	c.job.end()
	c.job.log.Debug("Finalize")
	c.job.observer.Reporter().Enter(snapshot.Finalizing)
	defer c.job.observer.Reporter().Enter(snapshot.Finished)
	defer c.job.observer.Close()
	call := c.beginLong(engine.CallFinalize)
	open := c.job.comms.openEpochs()
	c.job.checker.beforeFinalize(c.job, open)
	c.job.observer.CompareClocks()
	err := c.job.hub.Drain()
	if err == nil {
		// After the barrier every rank is in Finalize: only then may connections close.
		if err = c.job.awaitFinalize(c); err != nil {
			err = whyEnding(err)
		}
	}
	call.end()
	c.job.observer.HandOver()
	if err != nil {
		return asError("Finalize", errors.Join(err, c.job.hub.Destroy(err), c.job.wire.Leave()))
	}
	left := c.job.hub.Unfinished()
	if c.checker == nil {
		fmt.Fprint(c.job.out, observe.FinalizeWarning(c.rank, left, open))
	}
	return asError("Finalize", errors.Join(c.checker.atFinalize(left), c.job.hub.Shutdown(),
		c.job.wire.Finalize()))
}

// end refuses every call from now on.
func (j *job) end() {
	j.ended.Store(true)
	j.comms.disableFastPath()
}
