package mpi

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// Each collective has three forms, which share one description of the call: a collectiveCall. The blocking
// form carries it out with run, the non-blocking one begins it with startCall, and the persistent one keeps
// it with setUp. All ranks of a communicator must call its collectives, of all three forms, in the same
// order; the order of persistent ones is that of their Init (MPI 4.1, 6.12, 6.13).

// collectiveCall is a call of a collective by this rank, without types: what the arguments mean, once they
// are found to be valid.
type collectiveCall struct {
	comm    *Comm
	name    string // of the blocking form, if it is not the operation's
	call    coll.Call
	in, out []byte
	views   *viewBlocks // in place of in and out
	op      *engine.Operator
	element *check.Element // in checking mode
	err     error          // the first thing wrong with the arguments
}

// collState is what a communicator keeps for its collectives.
type collState struct {
	number     atomic.Uint32 // of the latest call; persistent ones have numbers of their own
	persistent atomic.Uint32
	checked    atomic.Uint32 // comparisons in checking mode

	// own serves blocking calls, one at a time: most programs repeat a call, or two in turn, and then its
	// schedule is there already.
	mu     engine.Lock // held while own is in use
	own    [2]engine.Collective
	used   [2]string // their algorithms
	keys   [2]callKey
	latest int // which of them the latest call was, or is, carried out with

	views atomic.Pointer[viewBlocks] // of the latest call on views; nil while one has it

	exchange atomic.Pointer[exchangeCall] // of the latest exchange; nil while one has it

	mailboxes mailboxes
}

// begin starts the description of a call on elements of type T, in a zero collectiveCall.
func begin[T any](a *collectiveCall, c *Comm, o coll.Operation) {
	a.comm, a.call.Operation = c, o
	if a.err = c.check(); a.err != nil {
		return
	}
	if !lastKnown[T]() {
		a.err = checkElement[T]()
	}
	a.element = elementOf[T](c)
	a.call.Rank, a.call.Size, a.call.ElemSize = c.rank, c.size, sizeOf[T]()
}

// fail keeps the first thing that is wrong with a call.
func (a *collectiveCall) fail(kind error, format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	}
}

// rooted sets the root, and reports whether it is this rank.
func (a *collectiveCall) rooted(root int) bool {
	if a.err == nil && uint(root) >= uint(a.call.Size) {
		a.fail(ErrRoot, "%d; %s has ranks 0 to %d", root, a.comm.Name(), a.call.Size-1)
	}
	a.call.Root = root
	return root == a.call.Rank
}

// by sets the operator.
func by[T any](a *collectiveCall, op Op[T]) {
	if op.operator == nil {
		a.fail(ErrOp, "an Op comes from Sum, NewOp and the like")
		return
	}
	a.op, a.call.Commutative = op.operator, op.operator.Commutative
	a.call.InOrder = a.err == nil && a.comm.reproducible && !op.operator.Associative
}

// reduced checks the buffers of a reduction from a vector to a vector, and sets them.
func reduced[T any](a *collectiveCall, in, out []T) {
	if isInPlace(in) {
		in = out
	}
	noInPlace(a, "out", out)
	if len(in) != len(out) {
		a.fail(ErrCount, "%d elements in, room for %d out", len(in), len(out))
	}
	a.call.Count = len(in)
	buffers(a, in, out)
	a.refuseOverlap()
}

// buffers sets the memory of a call.
func buffers[T any](a *collectiveCall, in, out []T) {
	if a.err == nil {
		a.in, a.out = bytesIn(in), bytesIn(out)
	}
}

// onlyIn sets the memory of a call at a rank that receives nothing.
func onlyIn[T any](a *collectiveCall, in []T) {
	noInPlace(a, "in", in)
	a.call.Count = len(in)
	buffers(a, in, nil)
}

// onlyOut sets the memory of a call at a rank that sends nothing.
func onlyOut[T any](a *collectiveCall, out []T) {
	noInPlace(a, "out", out)
	a.call.Count = len(out)
	buffers(a, nil, out)
}

// gathered sets the memory of a call that gathers blocks in out, of which own is this rank's.
func gathered[T any](a *collectiveCall, in, own, out []T) {
	noInPlace(a, "out", out)
	if isInPlace(in) {
		in = own
	} else if len(in) != len(own) {
		a.fail(ErrCount, "%d elements in, room for %d of this rank", len(in), len(own))
	}
	a.call.Count = len(own)
	buffers(a, in, out)
}

// scattered sets the memory of a call that scatters blocks of in, of which own is this rank's.
func scattered[T any](a *collectiveCall, in, own, out []T) {
	noInPlace(a, "in", in)
	if isInPlace(out) {
		out = own
	} else if len(out) != len(own) {
		a.fail(ErrCount, "%d elements in for this rank, room for %d", len(own), len(out))
	}
	a.call.Count = len(own)
	buffers(a, in, out)
}

// bytesIn is the memory of a slice of a type that has been checked.
func bytesIn[T any](buf []T) []byte {
	if len(buf) == 0 {
		return nil
	}
	return memory(buf)
}

// refuseOverlap refuses an input that overlaps the output: the result would depend on the algorithm. If both
// begin at the same address, the call is in place.
func (a *collectiveCall) refuseOverlap() {
	if !sameBeginning(a.in, a.out) && !disjoint(a.in, a.out) {
		a.fail(ErrBuffer, "input and output overlap")
	}
}

func sameBeginning(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// disjoint reports whether two pieces of memory do not overlap.
func disjoint(a, b []byte) bool {
	i, o := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return i+uintptr(len(a)) <= o || o+uintptr(len(b)) <= i
}

// inPlace marks the slice that InPlace returns: its data pointer is this variable's address.
var inPlace [16]byte

// InPlace stands for MPI_IN_PLACE. Passed as in, it means that the input is in out. Passed as out of Scatter,
// it means that the root's block stays in in.
func InPlace[T any]() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&inPlace)), 0)
}

func isInPlace[T any](buf []T) bool {
	return unsafe.Pointer(unsafe.SliceData(buf)) == unsafe.Pointer(&inPlace)
}

// noInPlace refuses InPlace where it has no meaning.
func noInPlace[T any](a *collectiveCall, what string, buf []T) {
	if isInPlace(buf) {
		a.fail(ErrBuffer, "InPlace has no meaning as %s at rank %d", what, a.call.Rank)
	}
}

// whole is the number of elements of each of n equal blocks.
func whole[T any](a *collectiveCall, what string, buf []T) int {
	n := max(a.call.Size, 1)
	if len(buf)%n != 0 {
		a.fail(ErrCount, "the %d elements of %s are no multiple of %d ranks", len(buf), what, n)
	}
	return len(buf) / n
}

// ownBlock is this rank's of equal blocks.
func ownBlock[T any](a *collectiveCall, what string, buf []T) []T {
	n := whole(a, what, buf)
	return buf[min(a.call.Rank*n, len(buf)):][:n]
}

// layout makes blocks of counts and displacements; without displs blocks follow one another.
func (a *collectiveCall) layout(n int, what string, counts, displs []int, room int) *coll.Blocks {
	b := &coll.Blocks{Counts: counts, Displs: displs, ElemSize: a.call.ElemSize}
	if len(counts) != n || displs != nil && len(displs) != n {
		a.fail(ErrCount, "%d counts and %d displacements for %s, which has %d blocks: one of each is needed "+
			"for a block, or no displacements", len(counts), len(displs), what, n)
		return b
	}
	at := 0
	for i, count := range counts {
		if displs != nil {
			at = displs[i]
		}
		switch {
		case count < 0:
			a.fail(ErrCount, "block %d of %s has a count of %d", i, what, count)
			return b
		case at < 0 || count > math.MaxInt-at || at+count > room:
			a.fail(ErrCount, "block %d of %s is %d elements from element %d on, and %[2]s has %[5]d", i, what,
				count, at, room)
			return b
		}
		at += count
	}
	return b
}

// part is the block of a rank, in the elements of a buffer.
func part[T any](a *collectiveCall, b *coll.Blocks, buf []T, rank int) []T {
	if a.err != nil {
		return nil
	}
	at := 0
	if b.Displs != nil {
		at = b.Displs[rank]
	} else {
		for _, n := range b.Counts[:rank] {
			at += n
		}
	}
	return buf[at:][:b.Counts[rank]]
}

// run carries out a call and returns when it is complete at this rank. Nothing of a may escape: then a call
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

// carryOut carries out a call without anything wrong, to its end.
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

// runOwnLocked carries out a call with what its communicator keeps for that.
func (a *collectiveCall) runOwnLocked(k *collState) error {
	c := a.comm
	if a.compares() { // first, as to prepare mailboxes is a collective, too
		if err := a.compare(); err != nil {
			a.skipLocked(k)
			return err
		}
	}
	if err := a.prepareMailboxesLocked(k); err != nil {
		return err
	}
	x := &k.own[k.latest]
	repeats := x.Call.Repeats(&a.call)
	if !repeats {
		k.latest = 1 - k.latest
		x = &k.own[k.latest]
		repeats = x.Call.Repeats(&a.call)
	}
	if !repeats || !a.repeatable() {
		a.planOwnLocked(k)
	}
	a.fill(x, engine.CollectiveTag(false, k.number.Add(1), a.call.Operation, x.Signature))
	if x.Beside = nil; !x.Schedule.Mailboxes && a.call.Mailbox > 0 {
		x.Beside = k.mailboxes.current
	}
	if x.Schedule.Mailboxes {
		a.err = c.e.Collectives.RunInMailboxes(x, k.mailboxes.current)
	} else {
		a.err = c.e.Collectives.Run(x)
	}
	x.Input, x.Output, x.Outgoing, x.Incoming = nil, nil, nil, nil
	k.rememberLocked(a)
	a.growMailboxesLocked(k)
	return a.err
}

// nextTag numbers a call.
func (a *collectiveCall) nextTag() int {
	return engine.CollectiveTag(false, a.comm.coll.number.Add(1), a.call.Operation, a.call.Signature())
}

// repeatable reports whether an equal call has the same schedule: what a pointer leads to may have changed.
func (a *collectiveCall) repeatable() bool {
	return a.call.Send == nil && a.call.Recv == nil && a.call.Neighbors == nil
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

// setUp makes a call that is begun again and again.
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
		mu: c.e.NewLock(), c: c, collective: x, memoryUse: a.memoryUse(), memory: c.job.hub.PinMemory(a.in),
		memory2: c.job.hub.PinMemory(a.out),
		peer:    NoPeer, tag: NoPeer,
	}, nil
}

// planOwnLocked writes the schedule of a call into the latest of what its communicator keeps.
func (a *collectiveCall) planOwnLocked(k *collState) {
	k.used[k.latest], k.keys[k.latest] = a.plan(&k.own[k.latest]), callKey{}
}

// plan writes the schedule of a call, and names its algorithm.
func (a *collectiveCall) plan(x *engine.Collective) (algorithm string) {
	x.Call, x.Signature = a.call, a.call.Signature()
	x.Call.Fabric, x.Call.Hosts, x.Call.Processors = a.comm.place()
	choices := a.comm.choices
	name, reason := choices.Build(&x.Schedule, &x.Call)
	if choices.Explain() {
		explain(a.comm, &x.Call, name, reason)
	}
	return name
}

// fill gives a collective what it works on.
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

// failed is the error of a call, whose name is that of the operation between a prefix and a suffix.
func (a *collectiveCall) failed(prefix, suffix string) error {
	name := cmp.Or(a.name, a.call.Operation.String())
	if prefix != "" {
		first, n := utf8.DecodeRuneInString(name)
		name = prefix + string(unicode.ToLower(first)) + name[n:]
	}
	return a.comm.failColl(name+suffix, a.err)
}

// nextTag takes a tag for a call that makes a communicator.
func (c *Comm) nextTag() int {
	return engine.CollectiveTag(false, c.coll.number.Add(1), engine.OperationSetup, 0)
}

// Most programs repeat a short collective again and again. To describe the call anew and compare it with the
// one before took as long as a message does. So the blocking calls that are used most first look whether they
// are a call that was carried out before, and go straight to the mailboxes then.

// callKey is what tells a valid blocking call from all others on its communicator that have a schedule of
// their own. No call has the zero key.
type callKey struct {
	operation coll.Operation
	elem      int // bytes of an element
	count     int
	root      int
	op        *engine.Operator
}

// key is the key of a call; zero if its schedule serves no other.
func (a *collectiveCall) key() callKey {
	if !a.repeatable() || a.call.InPlace {
		return callKey{}
	}
	return callKey{a.call.Operation, a.call.ElemSize, a.call.Count, a.call.Root, a.op}
}

// rememberLocked keeps the key of the call that was carried out last, if it went through the mailboxes, and
// would not go another way through larger ones: those are prepared when enough such calls have been counted.
func (k *collState) rememberLocked(a *collectiveCall) {
	k.keys[k.latest] = callKey{}
	if k.own[k.latest].Schedule.Mailboxes && a.err == nil &&
		!a.call.OutgrowsMailboxes(engine.MailboxBytes(a.call.Size)) {
		k.keys[k.latest] = a.key()
	}
}

// mayRepeat reports whether a call on elements of type T needs no look at the communicator and the type.
func mayRepeat[T any](c *Comm) bool {
	return lastKnown[T]() && c != nil && c.commState != nil && c.canceller == nil && !c.inFull.Load()
}

// repeat carries out a call that mayRepeat if one with its key was carried out before; false if not.
func (c *Comm) repeat(key callKey, in, out []byte) (done bool, err error) {
	k := &c.coll
	if !k.mu.TryLock() {
		return false, nil
	}
	if k.keys[k.latest] != key {
		if k.keys[1-k.latest] != key {
			k.mu.Unlock()
			return false, nil
		}
		k.latest = 1 - k.latest
	}
	x := &k.own[k.latest]
	x.Tag, x.Canceller = engine.CollectiveTag(false, k.number.Add(1), key.operation, x.Signature), nil
	x.Input, x.Output = in, out
	err = c.e.Collectives.RunInMailboxes(x, k.mailboxes.current)
	x.Input, x.Output = nil, nil
	k.mu.Unlock()
	if err != nil {
		return true, c.failColl(key.operation.String(), err)
	}
	return true, nil
}

// explain prints which algorithm carries out a call, once for each call site and length. Rank 0 of the
// communicator speaks for all.
func explain(c *Comm, call *coll.Call, algorithm string, reason coll.Reason) {
	if call.Rank != 0 {
		return
	}
	why := "chosen"
	switch reason {
	case coll.Forced:
		why = "forced by WEFT_COLL"
	case coll.FromTable:
		why = "named by the table of WEFT_COLL"
	}
	pcs := make([]uintptr, 16)
	_, site := program.CalledFrom(pcs[:runtime.Callers(2, pcs)])
	because := ""
	if reason == coll.Chosen {
		because = ": " + call.Why()
	}
	line := fmt.Sprintf("weft: %s: %v on %s, %d ranks, %d bytes: %s, %s of %s%s\n", site,
		call.Operation, c.Name(), call.Size, call.Bytes(), algorithm, why,
		strings.Join(coll.Algorithms(call.Operation), ", "), because)
	if _, before := c.job.explained.LoadOrStore(line, true); !before {
		fmt.Fprint(c.job.out, line)
	}
}
