// Package observe shows the state of a rank: to its launcher, which asks for it when a job makes no progress,
// and takes profiles and traces; to the user, by counters and reports; and to monitoring, by metrics. It
// knows communicators only as values of type Communicator.
package observe

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/internal/deadlock"
	"github.com/weft-mpi/weft/internal/setting"
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/wireup"
)

// Options select what is observed.
type Options struct {
	Statistics bool // print counters at the end
	Report     bool // count calls by where the program makes them
	Trace      int  // bytes of memory for a trace; 0 for no trace

	// Settings that are parsed when a rank knows its number.
	Profile, Metrics, MetricsToken setting.Value

	StuckAfter  time.Duration // time without progress after which it is reported; 0 for never
	StuckAction deadlock.Action
}

// Rank is the rank that is observed.
type Rank struct {
	Engine *engine.Engine // of the first endpoint
	Hub    *engine.Hub
	Wire   *wireup.Job
	Comms  Communicators
	Log    *slog.Logger
	Out    io.Writer      // standard error, as a rule
	End    func(code int) // ends the job and the rank; does not return
}

// Communicator is a communicator as observers see it.
type Communicator struct {
	ID      uint32 // context id of its point-to-point messages
	Name    string
	Ranks   []int32                // in the world, of its members; nil for all of the world
	Begun   uint32                 // collectives with numbers; in checking mode, comparisons of them
	Checked bool                   // in checking mode
	Held    []int                  // ranks in the world whose parts of a window this rank has locked
	Open    []engine.OpenTransfers // of a window
}

// Communicators are the communicators of a rank that are not freed.
type Communicators interface {
	// List returns them in the order of their ids.
	List() []Communicator
	// Find returns the communicator of a context id, or false.
	Find(context uint32) (Communicator, bool)
}

// Observer observes one rank.
type Observer struct {
	options  Options
	rank     Rank
	calls    *callStats // nil unless counters are printed
	sites    *callSites // nil unless calls are reported
	tracer   *tracer    // nil unless the rank is traced
	profile  profiler   // nil for none
	metrics  *metricsServer
	hooks    *exitHooks // nil if there is nothing to upload at the end
	reporter *Reporter  // nil if nobody asks for the rank's state
	tracing  atomic.Pointer[trace.Buffer]
}

// New begins to observe a rank, before its engine exists.
func New(options Options) (o *Observer, err error) {
	o = &Observer{options: options}
	if options.Statistics {
		o.calls = &callStats{}
	}
	if options.Report {
		o.sites = newCallSites()
	}
	if options.Trace > 0 {
		o.tracer = newTracer(options.Trace)
	}
	o.profile, err = startProfile(options.Profile)
	return o, err
}

// Hook returns the hook of the rank's engine; nil if nothing listens.
func (o *Observer) Hook() *engine.Hook {
	var tell []func(engine.Event)
	if o.calls != nil {
		tell = append(tell, o.calls.event)
	}
	if o.sites != nil {
		tell = append(tell, o.sites.event)
	}
	return newHook(o.tracer, tell)
}

// Attach tells the observer of the rank, whose engine has started, and serves its metrics.
func (o *Observer) Attach(r Rank) (err error) {
	o.rank = r
	var hooks []func(last bool)
	if o.calls != nil {
		s := statistics{h: r.Hub, out: r.Out, calls: o.calls}
		hooks = append(hooks, func(bool) { s.print() })
	}
	if o.sites != nil {
		hooks = append(hooks, func(bool) { o.leaveCallSites() })
	}
	if o.profile != nil {
		hooks = append(hooks, o.leaveProfile)
	}
	if o.tracer != nil {
		hooks = append(hooks, o.leaveTrace)
	}
	o.hooks = newExitHooks(hooks)
	o.metrics, err = startMetrics(o.options.Metrics, o.options.MetricsToken, r.Hub, r.Log)
	return err
}

// Joined tells the observer that the rank is a part of its job. r is the reporter to the launcher, or nil.
func (o *Observer) Joined(r *Reporter) { o.reporter = r.joined(o) }

// Asked tells the observer that the rank is a part of its job, and that its owner asks for its state by
// Snapshot: nobody else does.
func (o *Observer) Asked() {
	r := newReporter(nil, snapshot.Running)
	r.observer.Store(o)
	r.moved = time.Now()
	o.reporter = r
}

// Reporter returns the reporter of the rank's state, or nil.
func (o *Observer) Reporter() *Reporter { return o.reporter }

// Tracing returns the buffer for records; nil while the rank is not traced.
func (o *Observer) Tracing() *trace.Buffer { return o.tracing.Load() }

// HandOver uploads the measurements, at the end of the rank.
func (o *Observer) HandOver() { o.hooks.run() }

// Close stops the server of the rank's counters.
func (o *Observer) Close() { o.metrics.close() }
