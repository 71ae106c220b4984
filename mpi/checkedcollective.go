package mpi

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// In checking mode, a rank that calls a collective tells its two neighbors in the ring of ranks what it
// calls, and compares that with what they have told it, before it carries the call out. So differing calls
// are found although the ranks wait for one another, whatever the collective is. A rank sends a digest of 8
// bytes. If two digests differ, both neighbors know it, and each sends the other everything: call, line, and
// the arguments that must be the same. A rank that reaches Finalize announces that like a call.

// Messages of a call have its number, modulo signatureTags, as their tag; those that tell all have detailTag
// too.
const (
	signatureTags = 1 << 29
	detailTag     = 1 << 29
)

// detailWithin bounds the wait for what a neighbor has called. It is there, but its call may have been given
// up.
const detailWithin = 2 * time.Second

// compared is a comparison of calls with the neighbors.
type compared struct {
	tag    int
	mine   [1]uint64
	theirs [2][1]uint64
	peers  [2]int // ranks in the communicator: the one before this and the one after, or the only other one
	n      int    // how many there are

	receives [2]engine.Request
	group    engine.GroupCall
}

// nextComparison numbers a call.
func (c *Comm) nextComparison() (tag int) { return int(c.coll.checked.Add(1) % signatureTags) }

func (c *Comm) newCompared(tag int, d check.Digest) *compared {
	x := c.checker.compared.Get().(*compared)
	x.tag, x.mine[0] = tag, uint64(d)
	x.peers, x.n = c.neighbors()
	return x
}

// neighbors are the ranks before and after this one, and how many they are: with two ranks one.
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

// exchange compares by messages with all neighbors. The receives are posted first: a neighbor that has no
// memory for more messages takes a digest only then.
func (x *compared) exchange(c *Comm) error {
	if err := x.postReceives(c); err != nil {
		return err
	}
	for _, p := range x.peers[:x.n] {
		err := c.e.Sends.Send(contextid.Comparison.In(c.context), wordBytes(x.mine[:]), c.worldRank(p), x.tag)
		if err != nil {
			x.endReceives(c, x.receives[:x.n])
			return err
		}
	}
	return x.awaitDigests(c)
}

// postDigests sends the digest to the neighbors, and does not wait until they take it. The comparison must
// not be used again.
func (x *compared) postDigests(c *Comm) {
	context := contextid.Comparison.In(c.context)
	for _, p := range x.peers[:x.n] {
		if h, err := c.e.Sends.Isend(context, wordBytes(x.mine[:]), c.worldRank(p), x.tag); err == nil {
			c.e.Cancels.CancelAndFree(h)
		}
	}
}

// postReceives begins the receives of the digests. If the communicator is freed before awaitDigests, digests
// that come later are received all the same.
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

// endReceives gives up the receives that are left.
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

// signature is what this rank calls.
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

// commonBytes is the length that all ranks have to pass alike; -1 where there is none.
func (a *collectiveCall) commonBytes() int {
	switch a.call.Operation {
	case coll.OpBcast, coll.OpGather, coll.OpScatter, coll.OpAllgather, coll.OpAllgatherv, coll.OpAlltoall,
		coll.OpReduce, coll.OpAllreduce, coll.OpReduceScatter, coll.OpReduceScatterBlock, coll.OpScan,
		coll.OpExscan:
		return a.call.Bytes()
	}
	return -1
}

// digest condenses the signature.
func (a *collectiveCall) digest(form check.Form) check.Digest {
	d := check.Digest(0).With(uint64(a.call.Operation) | uint64(form)<<32).With(uint64(a.call.Root))
	bytes := a.commonBytes()
	if a.element != nil && bytes != 0 { // no elements are of any type
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

// checkMemory reports what is wrong with the memory of a call.
func (a *collectiveCall) checkMemory() {
	k := a.comm.checker
	if k.operations.Any() || a.views != nil || check.Overlap(a.in, a.out) {
		o := a.operation(k.sites.Here())
		k.operations.Look(&o)
	}
}

// compares reports whether a call has to be compared: in checking mode.
func (a *collectiveCall) compares() bool { return a.comm.checker != nil && a.comm.size > 1 }

// compare finds out whether the ranks call alike. If they do not, the call is still to be counted as carried
// out. What keeps the ranks from comparing, like the end of a context or the failure of a rank, is for the
// call itself to find.
func (a *collectiveCall) compare() error {
	c := a.comm
	x := c.newCompared(c.nextComparison(), a.digest(check.Blocking))
	if x.exchange(c) != nil {
		return nil
	}
	if x.agrees() {
		c.checker.compared.Put(x)
		return nil
	}
	s := a.signature(check.Blocking, c.checker.sites.Here())
	return c.explainDifference(x, &s)
}

// explainDifference tells the neighbors whose calls differ what this rank calls, and reports in what theirs
// differ from it. It returns the error of this rank's call; nil if they fit after all.
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
		c.e.Cancels.CancelAndFree(h) // its memory lives as long as it is read
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

// detail receives what a neighbor has called, if it comes within detailWithin.
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

// reportDifference reports two calls that do not fit together, and returns the error of this rank's.
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

// compareLater compares a call that does not block, when the neighbors have called. If the calls do not fit
// together the request fails.
func (a *collectiveCall) compareLater(form check.Form) {
	c := a.comm
	if a.err != nil || c.checker == nil || c.size == 1 {
		return
	}
	x := c.newCompared(c.nextComparison(), a.digest(form))
	if x.postDigests(c); x.postReceives(c) != nil {
		return // which the call itself finds
	}
	// Free of the communicator leaves what the neighbors tell until the end of this.
	explanation := &engine.GroupCall{Context: contextid.Comparison.In(c.context), Tag: x.tag | detailTag}
	if c.e.Recovery.BeginGroupCall(explanation) != nil {
		x.endReceives(c, x.receives[:x.n])
		return
	}
	s := a.signature(form, c.checker.sites.Here())
	end := func(error) {}
	if c.canceller == nil {
		var ctx context.Context
		ctx, end = context.WithCancelCause(context.Background())
		a.comm = &Comm{c.commState, c.e.Cancels.NewCanceller(ctx)}
	}
	c.checker.underWay.Add(1)
	c.e.Go(func() {
		defer c.checker.underWay.Done()
		defer c.e.Recovery.EndGroupCall(explanation)
		if x.awaitDigests(c) != nil || x.agrees() {
			return
		}
		if err := c.explainDifference(x, &s); err != nil {
			end(err)
		}
	})
}

// operation is what a collective does with memory.
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
		in = nil // a rank's block is in its place
	case within(out, in):
		out = nil
	}
	received := a.call.Recv
	if a.call.Operation == coll.OpReduceScatter {
		received = nil // its blocks are those of the input
	}
	// what lies between blocks may belong to another call, or change
	o.Reads, o.Writes = a.call.Send.Parts(in), received.Parts(out)
	return o
}

// within reports whether a is a part of b.
func within(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	at := uintptr(unsafe.Pointer(&a[0])) - uintptr(unsafe.Pointer(&b[0]))
	return at <= uintptr(len(b)) && at+uintptr(len(a)) <= uintptr(len(b))
}

// memoryUse is operation for a call that does not block; it is zero off checking mode.
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

// compareCompound compares a call that consists of several exchanges, before the first.
func (c *Comm) compareCompound(root int, arguments string, element *check.Element) error {
	return c.compareCompoundLater(root, arguments, element)()
}

// compareCompoundLater numbers the comparison, which the function that it returns carries out.
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
		c.checker.compared.Put(x)
		return err
	}
}

// tellFinalize tells the neighbors that this rank calls no more collectives on a communicator.
func (c *Comm) tellFinalize() {
	if c.size > 1 {
		c.newCompared(c.nextComparison(), check.AtFinalize).postDigests(c)
	}
}
