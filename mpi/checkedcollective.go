package mpi

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// In checking mode, a rank that calls a collective exchanges a description of the call with its two neighbors
// in the ring of ranks, and compares them, before it executes the call. So differing calls of any collective
// are found, although the ranks wait for one another. The description is a digest of 8 bytes. If two digests
// differ, both neighbors know it, and each sends the other the details: call, line, and the arguments that
// must be the same. A rank that reaches Finalize announces that like a call.

// The tag of a message is the number of the call modulo signatureTags, plus detailTag in messages with
// details.
const (
	signatureTags = 1 << 29
	detailTag     = 1 << 29
)

// detailWithin bounds the wait for a neighbor's details. The neighbor is alive, but may have abandoned the
// call.
const detailWithin = 2 * time.Second

// compared is a comparison of calls with the neighbors.
type compared struct {
	tag    int
	mine   [1]uint64
	theirs [2][1]uint64
	peers  [2]int // ranks in the communicator: the one before this and the one after, or the only other one
	n      int    // number of peers

	receives [2]engine.Request
	group    engine.GroupCall
	sending  bool // a send that nobody waits for may still read mine
}

// nextComparison numbers a call.
func (c *Comm) nextComparison() (tag int) { return int(c.coll.checked.Add(1) % signatureTags) }

func (c *Comm) newCompared(tag int, d check.Digest) *compared {
	x := c.checker.compared.Get().(*compared)
	x.tag, x.mine[0] = tag, uint64(d)
	x.peers, x.n = c.neighbors()
	return x
}

// neighbors returns the ranks before and after this one, and their number, which is one with two ranks.
func (c *Comm) neighbors() (peers [2]int, n int) {
	after := c.rank + 1
	if after == c.size {
		after = 0
	}
	if c.size == 2 {
		return [2]int{after, after}, 1
	}
	return [2]int{(c.rank + c.size - 1) % c.size, after}, 2
}

// exchange exchanges digests with all neighbors. The receives are posted first, so that a neighbor without
// memory for unexpected messages can take the digests.
func (x *compared) exchange(c *Comm) error {
	if err := x.postReceives(c); err != nil {
		return err
	}
	x.postDigests(c)
	return x.awaitDigests(c)
}

// postDigests sends the digest to the neighbors, which need it even if this rank gives up the call. It does
// not wait for the sends: a neighbor that has given up the call never receives it.
func (x *compared) postDigests(c *Comm) {
	context := contextid.Comparison.In(c.context)
	for _, p := range x.peers[:x.n] {
		if h, err := c.e.Sends.Isend(context, wordBytes(x.mine[:]), c.worldRank(p), x.tag); err == nil {
			x.sending = c.e.Cancels.CancelAndFree(h) || x.sending
		}
	}
}

// keep keeps the memory of a comparison for a later one.
func (x *compared) keep(c *Comm) {
	if !x.sending {
		c.checker.compared.Put(x)
	}
}

// postReceives begins the receives of the digests. Digests that arrive after the communicator was freed are
// still received.
func (x *compared) postReceives(c *Comm) error {
	x.group = engine.GroupCall{Context: contextid.Comparison.In(c.context), Tag: x.tag}
	if err := c.e.Recovery.BeginGroupCall(&x.group); err != nil {
		return err
	}
	for i, p := range x.peers[:x.n] {
		h, err := c.e.Recvs.Irecv(x.group.Context, wordBytes(x.theirs[i][:]), c.worldRank(p), x.tag, 1)
		if err == nil {
			c.e.Cancels.Bind(h, c.canceller)
			if err = c.e.Recovery.GroupCallErr(&x.group); err != nil {
				c.e.Cancels.CancelAndFree(h)
			}
		}
		if err != nil {
			x.endReceives(c, x.receives[:i])
			return err
		}
		x.receives[i] = h
	}
	return nil
}

// endReceives cancels the remaining receives.
func (x *compared) endReceives(c *Comm, left []engine.Request) {
	for _, h := range left {
		c.e.Cancels.CancelAndFree(h)
	}
	c.e.Recovery.EndGroupCall(&x.group)
}

// awaitDigests waits for the digests.
func (x *compared) awaitDigests(c *Comm) error {
	left := x.receives[:x.n]
	var err error
	for len(left) > 0 && err == nil {
		_, err = c.e.Requests.Wait(left[0])
		left = left[1:]
	}
	x.endReceives(c, left)
	return err
}

// agrees reports whether the neighbors call what this rank does.
func (x *compared) agrees() bool {
	return x.theirs[0] == x.mine && (x.n == 1 || x.theirs[1] == x.mine)
}

// signature describes this rank's call.
func (a *collectiveCall) signature(form check.Form, at *check.Site) check.Signature {
	s := check.Signature{
		Operation: uint32(a.call.Operation) + 1, Name: at.Call, Line: at.Line, Form: form,
		Root: -1, InPlace: a.call.InPlace,
	}
	if e := a.element; e != nil && a.call.Operation != coll.OpBarrier {
		s.Layout, s.Element = e.Layout, e.Name
	}
	switch a.call.Operation {
	case coll.OpBcast, coll.OpGather, coll.OpGatherv, coll.OpScatter, coll.OpScatterv, coll.OpReduce:
		s.Root = a.call.Root
	}
	s.Bytes = a.commonBytes()
	if a.op != nil {
		s.Operator = a.op.Name()
	}
	return s
}

// commonBytes returns the length that all ranks must pass; -1 if there is none.
func (a *collectiveCall) commonBytes() int {
	switch a.call.Operation {
	case coll.OpBcast, coll.OpGather, coll.OpScatter, coll.OpAllgather, coll.OpAllgatherv, coll.OpAlltoall,
		coll.OpReduce, coll.OpAllreduce, coll.OpReduceScatter, coll.OpReduceScatterBlock, coll.OpScan,
		coll.OpExscan:
		return a.call.Bytes()
	}
	return -1
}

// digest returns the digest of the signature.
func (a *collectiveCall) digest(form check.Form) check.Digest {
	d := check.Digest(0).With(uint64(a.call.Operation) | uint64(form)<<32).With(uint64(a.call.Root))
	bytes := a.commonBytes()
	if a.element != nil && bytes != 0 { // an empty buffer matches every type
		d = d.With(uint64(a.element.Layout))
	}
	if a.op != nil {
		d = d.With(a.op.Digest())
	}
	if a.call.InPlace {
		d = d.With(1)
	}
	return d.With(uint64(bytes))
}

// checkMemory reports mistakes in the buffers of a call.
func (a *collectiveCall) checkMemory() {
	k := a.comm.checker
	if k.operations.Any() || a.views != nil || check.Overlap(a.in, a.out) {
		o := a.operation(k.sites.Here())
		k.operations.Look(&o)
	}
}

// compares reports whether a call has to be compared: in checking mode.
func (a *collectiveCall) compares() bool { return a.comm.checker != nil && a.comm.size > 1 }

// compare compares the ranks' calls. If they differ, the call still counts as executed. Errors that prevent
// the comparison, such as a canceled context or a failed rank, are not returned: the call itself will report
// them.
func (a *collectiveCall) compare() error {
	c := a.comm
	x := c.newCompared(c.nextComparison(), a.digest(check.Blocking))
	if x.exchange(c) != nil {
		return nil
	}
	if x.agrees() {
		x.keep(c)
		return nil
	}
	s := a.signature(check.Blocking, c.checker.sites.Here())
	return c.explainDifference(x, &s)
}

// explainDifference exchanges details with the neighbors whose calls differ, and reports the differences. It
// returns the error of this rank's call; nil if the calls match after all.
func (c *Comm) explainDifference(x *compared, s *check.Signature) (failure error) {
	mine := &[check.SignatureSize]byte{}
	s.Put(mine)
	for i, p := range x.peers[:x.n] {
		if x.theirs[i] == x.mine {
			continue
		}
		context := contextid.Comparison.In(c.context)
		h, err := c.e.Sends.Isend(context, mine[:], c.worldRank(p), x.tag|detailTag)
		if err != nil {
			return err
		}
		c.e.Cancels.CancelAndFree(h) // the garbage collector keeps its memory while it is read
	}
	for i, p := range x.peers[:x.n] {
		if x.theirs[i] == x.mine {
			continue
		}
		theirs := check.Signature{Operation: check.Finalize, Name: "Finalize", Line: "its end"}
		if check.Digest(x.theirs[i][0]) != check.AtFinalize {
			theirs = c.detail(p, x.tag|detailTag)
		}
		if err := c.reportDifference(p, s, &theirs); failure == nil {
			failure = err
		}
	}
	return failure
}

// detail receives a neighbor's details, if they arrive within detailWithin.
func (c *Comm) detail(from, tag int) check.Signature {
	unknown := check.Signature{Operation: check.Finalize, Name: "something else", Line: "an unknown line"}
	b := &[check.SignatureSize]byte{}
	h, err := c.e.Recvs.Irecv(contextid.Comparison.In(c.context), b[:], c.worldRank(from), tag, 1)
	if err != nil {
		return unknown
	}
	for end := time.Now().Add(detailWithin); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if _, done, err := c.e.Requests.Test(h); err != nil {
			return unknown
		} else if done {
			return check.ParseSignature(b)
		}
	}
	c.e.Cancels.CancelAndFree(h)
	return unknown
}

// reportDifference reports two calls that differ, and returns the error of this rank's.
func (c *Comm) reportDifference(from int, mine, theirs *check.Signature) error {
	class, what := mine.Differ(theirs)
	if class == "" {
		return nil
	}
	if what != "" {
		what = ": " + what
	}
	c.checker.Report(class, fmt.Sprintf("%s on %s at %s, where rank %d called %s at %s%s", mine.Name,
		c.Name(), mine.Line, from, theirs.Name, theirs.Line, what))
	kind := ErrCollective
	if class == "different count" {
		kind = ErrCount
	}
	return fmt.Errorf("%w: %w: %s: rank %d called %s at %s%s", kind, errChecked, class, from, theirs.Name,
		theirs.Line, what)
}

// compareLater compares a nonblocking or persistent call when the neighbors have called too. If the calls
// differ, the request fails, or each later Start and the request of the last.
func (a *collectiveCall) compareLater(form check.Form) {
	c := a.comm
	if a.err != nil || c.checker == nil || c.size == 1 {
		return
	}
	x := c.newCompared(c.nextComparison(), a.digest(form))
	if x.postDigests(c); x.postReceives(c) != nil {
		return // the call itself reports it
	}
	// Free of the communicator does not drop the neighbors' digests before this ends.
	explanation := &engine.GroupCall{Context: contextid.Comparison.In(c.context), Tag: x.tag | detailTag}
	if c.e.Recovery.BeginGroupCall(explanation) != nil {
		x.endReceives(c, x.receives[:x.n])
		return
	}
	s := a.signature(form, c.checker.sites.Here())
	own := c.canceller.Another(c.e) // other calls through the handle go on
	a.comm = &Comm{c.commState, own}
	c.checker.underWay.Add(1)
	c.e.Go(func() {
		defer c.checker.underWay.Done()
		defer c.e.Recovery.EndGroupCall(explanation)
		if x.awaitDigests(c) != nil || x.agrees() {
			return
		}
		if err := c.explainDifference(x, &s); err != nil {
			own.End(err)
		}
	})
}

// operation describes the buffers of a collective and their use.
func (a *collectiveCall) operation(at *check.Site) check.Operation {
	o := check.Operation{Site: at, With: "on " + a.comm.Name()}
	if a.views != nil {
		o.Reads, o.Writes = a.views.in.pieces, a.views.out.pieces
		return o
	}
	in, out := a.in, a.out
	switch {
	case a.call.Operation == coll.OpBcast && a.call.Rank == a.call.Root:
		in, out = out, nil
	case within(in, out):
		in = nil // this rank's block is in out
	case within(out, in):
		out = nil
	}
	received := a.call.Recv
	if a.call.Operation == coll.OpReduceScatter {
		received = nil // the blocks are the input
	}
	// bytes between blocks may belong to another call, or change
	o.Reads, o.Writes = a.call.Send.Parts(in), received.Parts(out)
	return o
}

// within reports whether a lies in b.
func within(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	at := uintptr(unsafe.Pointer(&a[0])) - uintptr(unsafe.Pointer(&b[0]))
	return at <= uintptr(len(b)) && at+uintptr(len(a)) <= uintptr(len(b))
}

// memoryUse is operation for a nonblocking call; it is zero outside checking mode.
func (a *collectiveCall) memoryUse() (o check.Operation) {
	if a.comm.checker != nil {
		o = a.operation(nil)
	}
	return o
}

// tracked is the request of a collective that has begun. In checking mode its memory is in use from now on.
func (c *Comm) tracked(h engine.Request, use check.Operation) Request {
	if c.checker == nil {
		return Request{h, c}
	}
	use.Site = c.checker.sites.Here()
	r := &checkedRequest{Operation: use}
	c.checker.operations.Begin(&r.Operation)
	c.checker.track(c, h, r)
	return Request{h, c}
}

// compareCompound compares a compound call before its first step.
func (c *Comm) compareCompound(root int, arguments string, element *check.Element) error {
	return c.compareCompoundLater(root, arguments, element)()
}

// compareCompoundLater numbers a comparison, and returns a function that makes it.
func (c *Comm) compareCompoundLater(root int, arguments string, element *check.Element) func() error {
	if c.checker == nil || c.size == 1 {
		return func() error { return nil }
	}
	site := c.checker.sites.Here()
	element = orBytes(element)
	x := c.newCompared(c.nextComparison(), check.Digest(2).With(uint64(root)).WithText(site.Call).
		WithText(arguments).With(uint64(element.Layout)))
	return func() error {
		err := x.exchange(c)
		if err == nil && !x.agrees() {
			return c.explainDifference(x, &check.Signature{Operation: check.Named, Name: site.Call,
				Line: site.Line, Root: root, Bytes: -1, Arguments: arguments, Layout: element.Layout,
				Element: element.Name})
		}
		x.keep(c)
		return err
	}
}

// tellFinalize tells the neighbors that this rank calls no more collectives on a communicator.
func (c *Comm) tellFinalize() {
	if c.size > 1 {
		c.newCompared(c.nextComparison(), check.AtFinalize).postDigests(c)
	}
}
