package mpi

import (
	"cmp"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Each collective has three forms, which share one description of the call: a collectiveCall. The blocking
// form executes it with run, the non-blocking one begins it with startCall, and the persistent one stores it
// with setUp. All ranks of a communicator must call its collectives, of all three forms, in the same order;
// the order of persistent ones is that of their Init (MPI 4.1, 6.12, 6.13).

// collectiveCall is a call of a collective by this rank, without element types: its validated arguments.
type collectiveCall struct {
	comm    *Comm
	name    string // of the blocking form, if it is not the operation's
	call    coll.Call
	in, out []byte
	views   *viewBlocks // instead of in and out
	op      *engine.Operator
	element *check.Element // in checking mode
	err     error          // the first mistake in the arguments
}

// collState is the state of a communicator's collectives.
type collState struct {
	number     callNumber // persistent calls are numbered separately
	persistent atomic.Uint32
	checked    atomic.Uint32 // number of comparisons in checking mode

	// own executes blocking calls, one at a time. It keeps the schedules of the last two different calls,
	// because most programs repeat a call, or alternate between two.
	mu     engine.Lock // held while own is in use
	own    [2]engine.Collective
	used   [2]string // their algorithms
	keys   [2]callKey
	latest int // index of the one that executes the latest call

	views atomic.Pointer[viewBlocks] // reused by calls on views; nil while one uses it

	exchange atomic.Pointer[exchangeCall] // reused by exchanges; nil while one uses it

	mailboxes mailboxes
}

// run executes a call and returns when it is complete at this rank. Nothing of a may escape, so that a call
// allocates nothing.
func run(a collectiveCall) error {
	if a.err == nil && a.comm.checker != nil {
		a.checkMemory()
	}
	if a.err == nil {
		a.err = a.carryOut()
	}
	if a.err != nil {
		return a.failed("", "")
	}
	return nil
}

// carryOut executes a valid call.
func (a *collectiveCall) carryOut() (err error) {
	k := &a.comm.coll
	if own := k.mu.TryLock(); own || k.mailboxes.mayBeInUse() {
		if !own {
			k.mu.Lock()
		}
		err = a.runOwnLocked(k)
		k.mu.Unlock()
		return err
	}
	// another goroutine is in a collective of this communicator
	if a.compares() {
		if err := a.compare(); err != nil {
			a.nextTag()
			return err
		}
	}
	x := a.comm.e.Collectives.New()
	a.plan(x)
	a.fill(x, a.nextTag())
	return a.comm.e.Collectives.Run(x)
}

// nextTag numbers a call, and returns its tag.
func (a *collectiveCall) nextTag() int {
	return engine.CollectiveTag(false, a.comm.coll.number.next(), a.call.Operation, a.call.Signature())
}

// startCall begins a call.
func startCall(a collectiveCall) (Request, error) {
	a.compareLater(check.Nonblocking)
	if a.err != nil {
		return Request{}, a.failed("I", "")
	}
	x := a.comm.e.Collectives.New()
	a.plan(x)
	a.fill(x, a.nextTag())
	h, err := a.comm.e.Collectives.Start(x)
	if err != nil {
		a.err = err
		return Request{}, a.failed("I", "")
	}
	return a.comm.tracked(h, a.memoryUse()), nil
}

// setUp makes a persistent call.
func setUp(a collectiveCall) (*Persistent, error) {
	a.compareLater(check.Persistent)
	if a.err != nil {
		return nil, a.failed("", "Init")
	}
	c, k := a.comm, &a.comm.coll
	tag := engine.CollectiveTag(true, k.persistent.Add(1), a.call.Operation, a.call.Signature())
	x := &engine.Collective{}
	a.plan(x)
	a.fill(x, tag)
	return &Persistent{
		mu: c.e.NewLock(), c: c, collective: x, memoryUse: a.memoryUse(), memory: c.job.hub.Memory.Pin(a.in),
		memory2: c.job.hub.Memory.Pin(a.out),
		peer:    NoPeer, tag: NoPeer,
	}, nil
}

// plan builds the schedule of a call, and returns the name of its algorithm.
func (a *collectiveCall) plan(x *engine.Collective) (algorithm string) {
	x.Call, x.Signature = a.call, a.call.Signature()
	x.Call.Fabric, x.Call.Hosts, x.Call.Processors = a.comm.topology()
	choices := a.comm.choices
	name, reason := choices.Build(&x.Schedule, &x.Call)
	if choices.Explain() {
		explain(a.comm, &x.Call, name, reason)
	}
	return name
}

// fill sets the arguments of a collective.
func (a *collectiveCall) fill(x *engine.Collective, tag int) {
	c := a.comm
	x.Context, x.Tag, x.Canceller = contextid.Collective.In(c.context), tag, c.canceller
	if x.Ranks = nil; c.members != nil {
		x.Ranks = c.members.world
	}
	x.Input, x.Output, x.Op = a.in, a.out, a.op
	if a.views != nil {
		x.Outgoing, x.Incoming = a.views.in.list, a.views.out.list
	}
}

// failed returns the error of a call. The name of the call is that of the operation between a prefix and a
// suffix.
func (a *collectiveCall) failed(prefix, suffix string) error {
	name := cmp.Or(a.name, a.call.Operation.String())
	if prefix != "" {
		first, n := utf8.DecodeRuneInString(name)
		name = prefix + string(unicode.ToLower(first)) + name[n:]
	}
	return a.comm.failColl(name+suffix, a.err)
}

// nextTag returns a new tag for a compound call.
func (c *Comm) nextTag() int {
	return engine.CollectiveTag(false, c.coll.number.next(), engine.OperationSetup, 0)
}
