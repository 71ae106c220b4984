package mpi

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// In checking mode every rank tells the next rank of the communicator what it calls, and compares what the
// rank before it has told, before it begins a collective. So ranks that call differently are found out
// before they can wait for one another, whatever the collective is. What ends the program is told like a
// call.

// signatureTags bounds the tags of signatures, which count the calls.
const signatureTags = 1 << 30

// signed is a signature on its way.
type signed struct {
	mine, theirs [check.SignatureSize]byte
	tag          int
	next, before int // world ranks
}

func (c *Comm) newSigned(s *check.Signature) *signed {
	x := &signed{
		tag:  int(c.coll.checked.Add(1) % signatureTags),
		next: c.worldRank((c.rank + 1) % c.size), before: c.worldRank((c.rank + c.size - 1) % c.size),
	}
	s.Put(&x.mine)
	return x
}

// signature is what this rank calls.
func (a *collectiveCall) signature(at *check.Site) check.Signature {
	s := check.Signature{
		Operation: uint32(a.call.Operation) + 1, Name: at.Call, Line: at.Line,
		Root: -1, Bytes: -1, InPlace: a.call.InPlace,
	}
	if e := a.element; e != nil && a.call.Operation != coll.OpBarrier {
		s.Layout, s.Element = e.Layout, e.Name
	}
	switch a.call.Operation {
	case coll.OpBcast, coll.OpGather, coll.OpGatherv, coll.OpScatter, coll.OpScatterv, coll.OpReduce:
		s.Root = a.call.Root
	}
	switch a.call.Operation {
	case coll.OpBcast, coll.OpGather, coll.OpScatter, coll.OpAllgather, coll.OpAlltoall, coll.OpReduce,
		coll.OpAllreduce, coll.OpReduceScatterBlock, coll.OpScan, coll.OpExscan:
		s.Bytes = a.call.Count * a.call.ElemSize
	case coll.OpAllgatherv, coll.OpReduceScatter:
		s.Bytes = 0
		for _, n := range a.call.Recv.Counts {
			s.Bytes += n * a.call.ElemSize
		}
	}
	if a.op != nil {
		s.Operator = a.op.Name()
	}
	return s
}

// agree finds out whether the ranks call alike, before a call that blocks. Off checking mode it does nothing.
func (a *collectiveCall) agree() {
	c := a.comm
	if a.err != nil || c.checker == nil {
		return // an error may be that there is no communicator
	}
	k := c.checker
	site := k.sites.Here()
	if k.operations.Any() || check.Overlap(a.in, a.out) {
		o := a.operation(site)
		k.operations.Look(&o)
	}
	s := a.signature(site)
	a.err = c.exchangeSignature(&s)
}

// exchangeSignature is agree for any call that blocks.
func (c *Comm) exchangeSignature(s *check.Signature) error {
	if c.size == 1 {
		return nil
	}
	x := c.newSigned(s)
	h, err := c.e.Irecv(c.context+checking, x.theirs[:], x.before, x.tag, 1)
	if err != nil {
		return err
	}
	c.e.Bind(h, c.scope)
	if err := c.e.Send(c.context+checking, x.mine[:], x.next, x.tag); err != nil {
		c.e.CancelAndFree(h)
		return err
	}
	if _, err := c.e.Wait(h); err != nil {
		return err
	}
	return c.compare(x)
}

// compare reports calls that do not fit together, and returns the error of this one.
func (c *Comm) compare(x *signed) error {
	if check.Agree(&x.mine, &x.theirs) {
		return nil
	}
	mine, theirs := check.ParseSignature(&x.mine), check.ParseSignature(&x.theirs)
	class, what := mine.Differ(&theirs)
	if what != "" {
		what = ": " + what
	}
	before := (c.rank + c.size - 1) % c.size
	found := fmt.Sprintf("%s on %s at %s, where rank %d called %s at %s%s", mine.Name, c.Name(), mine.Line,
		before, theirs.Name, theirs.Line, what)
	c.checker.Report(class, found)
	kind := ErrCollective
	if class == "different count" {
		kind = ErrCount
	}
	return fmt.Errorf("%w: %w: %s: rank %d called %s at %s%s", kind, errChecked, class, before, theirs.Name,
		theirs.Line, what)
}

// agreeLater is agree for a call that does not block: it compares when the signature comes. If the calls do
// not fit together the request fails.
func (a *collectiveCall) agreeLater() {
	c := a.comm
	k := c.checker
	if k == nil || a.err != nil || c.size == 1 {
		return
	}
	s := a.signature(k.sites.Here())
	x := c.newSigned(&s)
	h, err := c.e.Irecv(c.context+checking, x.theirs[:], x.before, x.tag, 1)
	if err != nil {
		a.err = err
		return
	}
	out, err := c.e.Isend(c.context+checking, x.mine[:], x.next, x.tag)
	if err != nil {
		c.e.CancelAndFree(h)
		a.err = err
		return
	}
	c.e.CancelAndFree(out) // its memory lives as long as it is read
	end := func(error) {}
	if c.scope == nil {
		var ctx context.Context
		ctx, end = context.WithCancelCause(context.Background())
		a.comm = &Comm{c.commState, c.e.NewCanceller(ctx), nil}
	}
	k.underWay.Add(1)
	go func() {
		defer k.underWay.Done()
		if _, err := c.e.Wait(h); err != nil {
			return
		}
		if err := c.compare(x); err != nil {
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
	k := c.checker
	if k == nil {
		return nil
	}
	site := k.sites.Here()
	return c.exchangeSignature(&check.Signature{Operation: check.Named, Name: site.Call, Line: site.Line,
		Root: root, Bytes: -1})
}

// tellFinalize tells the next rank that this one calls no more collectives on a communicator.
func (c *Comm) tellFinalize() {
	if c.size == 1 {
		return
	}
	s := check.Signature{Operation: check.Finalize, Name: "Finalize", Line: "its end", Root: -1, Bytes: -1}
	x := c.newSigned(&s)
	if h, err := c.e.Isend(c.context+checking, x.mine[:], x.next, x.tag); err == nil {
		c.e.CancelAndFree(h)
	}
}
