package mpi

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// In checking mode, before a rank begins a collective, it tells its two neighbors in the ring of ranks what
// it calls, and compares that with what they have told it. So differing calls are found before the ranks can
// wait for one another, whatever the collective is. A rank sends a digest of 8 bytes. If two digests differ,
// both neighbors know it, and each sends the other everything: call, line, and the arguments that must be the
// same. A rank that reaches Finalize announces that like a call.

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
}

func (c *Comm) newCompared(d check.Digest) *compared {
	x := c.checker.compared.Get().(*compared)
	*x = compared{tag: int(c.coll.checked.Add(1) % signatureTags), mine: [1]uint64{uint64(d)}, n: 2}
	x.peers = [2]int{(c.rank + c.size - 1) % c.size, (c.rank + 1) % c.size}
	if c.size == 2 {
		x.n = 1
	}
	return x
}

// sendDigest sends the digest to the neighbors.
func (x *compared) sendDigest(c *Comm) error {
	for _, p := range x.peers[:x.n] {
		if err := c.e.Send(c.context+checking, wordBytes(x.mine[:]), c.worldRank(p), x.tag); err != nil {
			return err
		}
	}
	return nil
}

// recvDigests receives the digests of the neighbors.
func (x *compared) recvDigests(c *Comm) (err error) {
	g := engine.GroupCall{Context: c.context + checking, Tag: x.tag}
	if err := c.e.BeginGroupCall(&g); err != nil {
		return err
	}
	defer c.e.EndGroupCall(&g)
	for i, p := range x.peers[:x.n] {
		b := wordBytes(x.theirs[i][:])
		if h, begun := c.e.Irecv(c.context+checking, b, c.worldRank(p), x.tag, 1); begun == nil {
			c.e.Bind(h, c.canceller)
			if err = c.e.GroupCallErr(&g); err != nil {
				c.e.CancelAndFree(h)
				return err
			}
			_, err = c.e.Wait(h)
		} else {
			err = begun
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// agrees tells whether the neighbors call what this rank does.
func (x *compared) agrees() bool {
	return x.theirs[0] == x.mine && (x.n == 1 || x.theirs[1] == x.mine)
}

// signature is what this rank calls.
func (a *collectiveCall) signature(at *check.Site) check.Signature {
	s := check.Signature{
		Operation: uint32(a.call.Operation) + 1, Name: at.Call, Line: at.Line,
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
	case coll.OpBcast, coll.OpGather, coll.OpScatter, coll.OpAllgather, coll.OpAlltoall, coll.OpReduce,
		coll.OpAllreduce, coll.OpReduceScatterBlock, coll.OpScan, coll.OpExscan:
		return a.call.Count * a.call.ElemSize
	case coll.OpAllgatherv, coll.OpReduceScatter:
		total := 0
		for _, n := range a.call.Recv.Counts {
			total += n * a.call.ElemSize
		}
		return total
	}
	return -1
}

// digest condenses the signature.
func (a *collectiveCall) digest() check.Digest {
	d := check.Digest(0).With(uint64(a.call.Operation)).With(uint64(a.call.Root))
	if a.element != nil {
		d = d.With(uint64(a.element.Layout))
	}
	if a.op != nil {
		d = d.With(a.op.Digest())
	}
	if a.call.InPlace {
		d = d.With(1)
	}
	return d.With(uint64(a.commonBytes()))
}

// agree finds out whether the ranks call alike, before a call that blocks. It is for checking mode.
func (a *collectiveCall) agree() {
	c := a.comm
	if c.checker.operations.Any() || check.Overlap(a.in, a.out) {
		o := a.operation(c.checker.sites.Here())
		c.checker.operations.Look(&o)
	}
	x, err := c.exchangeDigest(a.digest())
	if x != nil {
		s := a.signature(c.checker.sites.Here())
		err = c.explainDifference(x, &s)
	}
	a.err = err
}

// exchangeDigest compares a call that blocks with those of the neighbors. It returns the comparison where
// they differ.
func (c *Comm) exchangeDigest(d check.Digest) (*compared, error) {
	if c.size == 1 {
		return nil, nil
	}
	x := c.newCompared(d)
	err := x.sendDigest(c)
	if err == nil {
		err = x.recvDigests(c)
	}
	if err == nil && !x.agrees() {
		return x, nil
	}
	c.checker.compared.Put(x)
	return nil, err
}

// explainDifference reports calls that do not fit together, and returns the error of this one; nil if they
// fit after all.
func (c *Comm) explainDifference(x *compared, s *check.Signature) (failure error) {
	mine := &[check.SignatureSize]byte{}
	s.Put(mine)
	for i, p := range x.peers[:x.n] {
		if x.theirs[i] != x.mine {
			h, err := c.e.Isend(c.context+checking, mine[:], c.worldRank(p), x.tag|detailTag)
			if err != nil {
				return err
			}
			c.e.CancelAndFree(h) // its memory lives as long as it is read
		}
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

// detail receives what a neighbor has called.
func (c *Comm) detail(from, tag int) check.Signature {
	b := &[check.SignatureSize]byte{}
	unknown := check.Signature{Operation: check.Finalize, Name: "something else", Line: "an unknown line"}
	h, err := c.e.Irecv(c.context+checking, b[:], c.worldRank(from), tag, 1)
	if err != nil {
		return unknown
	}
	for end := time.Now().Add(detailWithin); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		if _, done, err := c.e.Test(h); err != nil {
			return unknown
		} else if done {
			return check.ParseSignature(b)
		}
	}
	c.e.CancelAndFree(h)
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

// agreeLater is agree for a call that does not block: it compares when the neighbors have called. If the
// calls do not fit together the request fails.
func (a *collectiveCall) agreeLater() {
	c := a.comm
	if a.err != nil || c.checker == nil || c.size == 1 {
		return
	}
	x := c.newCompared(a.digest())
	if a.err = x.sendDigest(c); a.err != nil {
		return
	}
	s := a.signature(c.checker.sites.Here())
	end := func(error) {}
	if c.canceller == nil {
		var ctx context.Context
		ctx, end = context.WithCancelCause(context.Background())
		a.comm = &Comm{c.commState, c.e.NewCanceller(ctx), nil}
	}
	c.checker.underWay.Add(1)
	go func() {
		defer c.checker.underWay.Done()
		if x.recvDigests(c) != nil || x.agrees() {
			return
		}
		if err := c.explainDifference(x, &s); err != nil {
			end(err)
		}
	}()
}

// operation is what a collective does with memory.
func (a *collectiveCall) operation(at *check.Site) check.Operation {
	o := check.Operation{Site: at, With: "on " + a.comm.Name()}
	in, out := a.in, a.out
	switch {
	case a.call.Operation == coll.OpBcast && a.call.Rank == a.call.Root:
		in, out = out, nil
	case within(in, out):
		in = nil // a rank's block is in its place
	case within(out, in):
		out = nil
	}
	if len(in) > 0 {
		o.Reads = [][]byte{in}
	}
	if len(out) > 0 {
		o.Writes = [][]byte{out}
	}
	return o
}

// within tells whether a is a part of b.
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
	return Request{h, c.handle(r)}
}

// agreeCompound is agree for a call that consists of several exchanges.
func (c *Comm) agreeCompound(root int) error {
	if c.checker == nil {
		return nil
	}
	site := c.checker.sites.Here()
	d := check.Digest(2).With(uint64(root)).WithText(site.Call)
	x, err := c.exchangeDigest(d)
	if x != nil {
		err = c.explainDifference(x, &check.Signature{Operation: check.Named, Name: site.Call,
			Line: site.Line, Root: root, Bytes: -1})
	}
	return err
}

// tellFinalize tells the neighbors that this rank calls no more collectives on a communicator.
func (c *Comm) tellFinalize() {
	if c.size == 1 {
		return
	}
	x := c.newCompared(check.AtFinalize)
	for _, p := range x.peers[:x.n] {
		if h, err := c.e.Isend(c.context+checking, wordBytes(x.mine[:]), c.worldRank(p), x.tag); err == nil {
			c.e.CancelAndFree(h)
		}
	}
}
