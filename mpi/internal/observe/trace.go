package observe

import (
	"github.com/weft-mpi/weft/internal/snapshot"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// tracer traces a rank, for weft run --trace.
type tracer struct {
	buffer *trace.Buffer
	head   trace.Head
	// the first ranks of the clocks other than rank 0's, in ascending order, which compare them with it
	leaders []int
}

// newHook returns a hook with a trace, which may be nil, and functions to call; nil for neither.
func newHook(t *tracer, tell []func(engine.Event)) *engine.Hook {
	h := &engine.Hook{}
	if t != nil {
		h.Trace = t.buffer
	}
	switch {
	case len(tell) == 1:
		h.Tell = tell[0]
	case len(tell) > 1:
		h.Tell = func(e engine.Event) {
			for _, f := range tell {
				f(e)
			}
		}
	case t == nil:
		return nil
	}
	return h
}

// newTracer begins a trace in a number of bytes of memory.
func newTracer(bytes int) *tracer {
	t := &tracer{buffer: trace.NewBuffer(bytes, engine.Epoch)}
	t.head.Wall = engine.Epoch.UnixNano()
	if ns, clock, err := sys.Monotonic(engine.Epoch); err == nil {
		t.head.Epoch, t.head.Clock = ns, clock
	}
	if sys.SteadyTicks() {
		t.buffer.UseTicks()
	}
	for c := range engine.Calls {
		t.head.Calls = append(t.head.Calls, c.String())
	}
	t.head.Calls = append(t.head.Calls, engine.OperationNames()...)
	return t
}

// BeginTrace begins to trace the regions of the program, and finds out which clocks the ranks read. gather
// gathers a word of each rank; it is a collective call on the world.
func (o *Observer) BeginTrace(gather func(mine uint64, all []uint64) error) {
	t, e := o.tracer, o.rank.Engine
	if t == nil {
		return
	}
	t.head.Rank, t.head.Size = e.Rank(), e.Size()
	o.tracing.Store(t.buffer)
	t.head.Base = t.head.Clock
	if _, elsewhere := o.rank.Wire.Neighbors(); !elsewhere {
		return
	}
	clocks := make([]uint64, e.Size())
	if err := gather(t.head.Clock, clocks); err != nil {
		o.rank.Log.Warn("the clocks of the ranks cannot be compared", "error", err)
		return
	}
	t.head.Base = clocks[0]
	known := map[uint64]bool{clocks[0]: true}
	for rank, clock := range clocks {
		if !known[clock] {
			known[clock] = true
			t.leaders = append(t.leaders, rank)
		}
	}
	o.CompareClocks()
}

// maxTraceBytes bounds the bytes that a rank uploads.
const maxTraceBytes = snapshot.MaxArtifact

// leaveTrace uploads the trace, and ends it if it is the last one.
func (o *Observer) leaveTrace(last bool) {
	if last {
		o.tracing.Store(nil)
	}
	h := o.tracer.head
	h.Rank, h.Size, h.Comms = o.rank.Engine.Rank(), o.rank.Engine.Size(), map[uint32]string{}
	h.Several = o.rank.Hub.Several()
	for _, c := range o.rank.Comms.List() {
		h.Comms[c.ID] = c.Name
	}
	data, err := o.tracer.buffer.Encode(h, maxTraceBytes)
	if err == nil {
		err = o.reporter.leave(snapshot.Trace, data)
	}
	if err != nil {
		o.rank.Log.Warn("the trace of this rank is lost", "error", err)
	}
}
