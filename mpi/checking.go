package mpi

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/inprocess"
	"github.com/weft-mpi/weft/mpi/internal/observe"
	"github.com/weft-mpi/weft/mpi/internal/program"
)

// checker is a rank's state for checking mode (WEFT_CHECK=1); nil if that is off. In checking mode every
// message has a header of check.HeaderSize bytes before its payload, and every collective begins with a
// comparison with the neighbors in the ring of ranks.
type checker struct {
	*check.Reporter
	sites      *check.Sites
	operations *check.Operations
	headers    sync.Pool      // *[]byte: memory for small messages with their header
	compared   sync.Pool      // *compared
	strict     bool           // communicators and windows must be freed before Finalize
	underWay   sync.WaitGroup // comparisons of nonblocking collectives

	mu       sync.Mutex
	requests map[requestKey]*checkedRequest // those for which the program has not waited
}

// requestKey is the handle of a request, with its endpoint: each has handles of its own.
type requestKey struct {
	e *engine.Engine
	h engine.Request
}

func newChecker(rank int, out io.Writer) *checker {
	r := check.NewReporter(rank, out)
	return &checker{
		Reporter: r, sites: check.NewSites(program.CalledFrom), operations: check.NewOperations(r),
		requests: map[requestKey]*checkedRequest{},
		headers: sync.Pool{New: func() any {
			b := make([]byte, check.HeaderSize+smallChecked)
			return &b
		}},
		compared: sync.Pool{New: func() any { return &compared{} }},
	}
}

// wrongArguments are the errors of incorrect calls, with the class of the mistake.
var wrongArguments = []struct {
	err   error
	class string
}{
	{ErrTruncate, "receive too short"}, {ErrRank, "invalid rank"}, {ErrTag, "invalid tag"},
	{ErrCollective, "different collective"}, {ErrCount, "invalid count"}, {ErrBuffer, "invalid buffer"},
	{ErrType, "invalid type"}, {ErrRoot, "invalid root"}, {ErrOp, "invalid operator"},
	{ErrComm, "invalid communicator"}, {ErrRequest, "invalid request"}, {ErrArg, "invalid argument"},
	{ErrWin, "invalid window"}, {ErrRange, "outside the window"}, {ErrEpoch, "wrong epoch"},
	{engine.ErrUnderWay, ""}, // atFinalize has reported it
	{ErrFinalized, "call after Finalize"},
}

// errChecked marks errors that have been reported.
var errChecked = inprocess.ErrChecked

// failed reports a call that fails because the program is wrong.
func (k *checker) failed(err error) {
	if k == nil || errors.Is(err, errChecked) {
		return
	}
	for _, w := range wrongArguments {
		if errors.Is(err, w.err) {
			if w.class == "" {
				return
			}
			var e *Error
			if errors.As(err, &e) {
				// the report itself names the rank
				report := *e
				report.Rank, err = NoPeer, &report
			}
			k.Report(w.class, fmt.Sprintf("at %s: %v", k.sites.Here().Line, err))
			return
		}
	}
}

// unreceived is called by the engine for a message that nobody has received.
func (k *checker) unreceived(j *job, context uint32, source, tag int, head []byte) {
	if !contextid.PointToPoint.Is(context) {
		return
	}
	comm, from := "a communicator that has been freed", source
	if c := j.comms.find(context); c != nil {
		comm, from = *c.label.Load(), (&Comm{commState: c}).localRank(source)
	}
	h := check.ParseHeader(head)
	if h.Line == "" {
		h.Line = "an unknown line"
	}
	k.Report("message never received", fmt.Sprintf("from rank %d, tag %d, on %s, sent at %s", from, tag, comm,
		h.Line))
}

// settleWithin bounds the wait for comparisons at the end. The ranks that send their digests are alive, so
// they arrive soon.
const settleWithin = time.Second

// beforeFinalize tells the neighbors on each communicator that this rank calls no more collectives, and waits
// for the comparisons of those that have begun.
func (k *checker) beforeFinalize(j *job, open []string) {
	if k == nil {
		return
	}
	for _, c := range j.comms.all() {
		(&Comm{commState: c}).tellFinalize()
	}
	settled := make(chan struct{})
	go func() {
		k.underWay.Wait()
		close(settled)
	}()
	select {
	case <-settled:
	case <-time.After(settleWithin):
		j.log.Debug("Finalize leaves collectives that could not be compared", "waited", settleWithin)
	}
	for _, call := range j.observer.UnderWay() {
		k.Report(underWay, call)
	}
	for _, text := range open {
		k.Report("epoch never closed", text)
	}
	if k.strict {
		k.reportNeverFreed(j.comms.all())
	}
}

// reportNeverFreed reports communicators, and windows, that were never freed.
func (k *checker) reportNeverFreed(list []*commState) {
	for _, c := range list {
		class := "communicator never freed"
		switch w := c.window.Load(); {
		case c.context == contextid.World || w != nil && w.freed.Load():
			continue
		case w != nil:
			class = "window never freed"
		}
		k.Report(class, *c.label.Load()+c.made)
	}
}

// maxMakers is the number of stack frames in which callOf looks for the program's call.
const maxMakers = 32

// callOf names the call that makes a communicator, for the report that it was never freed.
func (k *checker) callOf() string {
	if !k.strict {
		return ""
	}
	var callers [maxMakers]uintptr
	call, site := program.CalledFrom(callers[:runtime.Callers(1, callers[:])])
	if site == "" {
		return ""
	}
	return fmt.Sprintf(", made by %s at %s", call, site)
}

// underWay is the class of a call that another goroutine is in when Finalize is called.
const underWay = "call under way at Finalize"

// atFinalize reports unfinished operations, and fails if there were mistakes.
func (k *checker) atFinalize(left []engine.Unfinished) error {
	if k == nil {
		return nil
	}
	k.operations.ReportLeft()
	if k.Count() == 0 {
		// A call that did not sleep when the calls were looked at.
		for _, l := range left {
			if text := observe.UnfinishedText(l); text != "" && l.Kind != engine.UnreceivedMessage {
				k.Report(underWay, text)
			}
		}
	}
	switch n := k.Count(); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w has found a mistake", errChecked)
	default:
		return fmt.Errorf("%w has found %d mistakes", errChecked, n)
	}
}

// checkedRequest is a request in checking mode.
type checkedRequest struct {
	check.Operation
	element *check.Element // of a receive; nil for other operations
	told    bool           // mistakes are reported, and its error excludes the header
	head    [check.HeaderSize]byte
	vec     [2][]byte // the header and a contiguous buffer
}

// checkingMode reports whether the communicators of requests are in checking mode, which all of a rank are or
// none.
func checkingMode(rs []Request) bool {
	for i := range rs {
		if rs[i].c != nil {
			return rs[i].c.checker != nil
		}
	}
	return false
}

// track registers r under its handle on a communicator until the program has waited for it.
func (k *checker) track(c *Comm, h engine.Request, r *checkedRequest) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.requests[requestKey{c.e, h}] = r
}

// waitedFor ends the tracking of a request: the program may use its buffer again. err is the request's own
// error.
func (k *checker) waitedFor(c *Comm, h engine.Request, st *engine.Status, err error) {
	if k == nil || errors.Is(err, engine.ErrRequest) {
		return
	}
	k.mu.Lock()
	key := requestKey{c.e, h}
	r := k.requests[key]
	delete(k.requests, key)
	k.mu.Unlock()
	if r != nil {
		k.operations.End(&r.Operation)
		r.complete(c, st, err)
	}
}

// completed is waitedFor for a request that the program still has to wait for.
func (k *checker) completed(c *Comm, h engine.Request, st *engine.Status, err error) {
	if k == nil {
		return
	}
	k.mu.Lock()
	r := k.requests[requestKey{c.e, h}]
	k.mu.Unlock()
	if r != nil {
		r.complete(c, st, err)
	}
}

// complete processes the result of a request, once.
func (r *checkedRequest) complete(c *Comm, st *engine.Status, err error) {
	if r.told || r.element == nil || st == nil || st.Cancelled || st.Elem == 0 || st.Source == ProcNull {
		return
	}
	r.told = true
	withoutHeader(err)
	if err == nil {
		c.checker.sameType(c, r.head[:], r.element, st, r.Site)
	}
}

// withoutHeader subtracts the header from the lengths in an error.
func withoutHeader(err error) {
	if err == nil {
		return // without an allocation
	}
	var t *engine.TruncateError
	if errors.As(err, &t) {
		t.Bytes, t.Room = t.Bytes-check.HeaderSize, t.Room-check.HeaderSize
	}
}

// sameType reports a message whose type differs from that of its receive. A message without elements matches
// every type.
func (k *checker) sameType(c *Comm, head []byte, e *check.Element, st *engine.Status, at *check.Site) {
	if st.Bytes <= check.HeaderSize || check.SameLayout(head, e) {
		return
	}
	h := check.ParseHeader(head)
	k.Report("different type",
		fmt.Sprintf("%s of %s at %s, of a message from rank %d, tag %d, on %s, which sent "+
			"%s at %s", at.Call, e.Name, at.Line, c.localRank(st.Source), st.Tag, c.Name(), h.Name, h.Line))
}

// smallChecked is the payload up to which a blocking call copies a message together with its header.
const smallChecked = 8 << 10

// elementOf describes T in checking mode. It returns nil otherwise, and for a type that cannot be sent.
func elementOf[T any](c *Comm) *check.Element {
	if c == nil || c.commState == nil || c.checker == nil {
		return nil
	}
	if k := lastOf[T](); k != nil {
		return k.element
	}
	return lookElement[T]().element
}

// bytesElement stands for messages that may be received as any type.
var bytesElement = &check.Element{Name: "bytes"}

func orBytes(e *check.Element) *check.Element {
	if e == nil {
		return bytesElement
	}
	return e
}

// with describes the peer and the tag of a call.
func (c *Comm) with(call string, peer, tag int) string {
	who, what := fmt.Sprintf("%s rank %d", preposition(call), peer), fmt.Sprintf("tag %d", tag)
	if peer == AnySource {
		who = "from any source"
	}
	if tag == AnyTag {
		what = "any tag"
	}
	return fmt.Sprintf("%s, %s, on %s", who, what, c.Name())
}

// pieces lists the memory of a buffer, in order.
func (b *buffer) pieces() [][]byte {
	switch {
	case b.vec != nil:
		return b.vec
	case b.layout != nil:
		var list [][]byte
		for at := 0; at < b.layout.Bytes(); {
			from, n := b.layout.Span(at)
			list = append(list, unsafe.Slice((*byte)(unsafe.Add(b.memory, from)), n))
			at += n
		}
		return list
	case b.sized != nil:
		return nil
	}
	return [][]byte{b.bytes}
}

// isShort reports whether a blocking call may copy the message together with its header.
func (b *buffer) isShort() bool {
	return b.vec == nil && b.layout == nil && len(b.bytes) <= smallChecked
}

// checkedSend is Send and Ssend in checking mode.
func (c *Comm) checkedSend(b *buffer, dst, tag int, sync bool) error {
	k := c.checker
	if !sync && c.canceller == nil && b.isShort() {
		site := k.sites.Here()
		if k.operations.Any() {
			k.operations.Look(&check.Operation{Site: site, With: c.with(site.Call, dst, tag),
				Reads: [][]byte{b.bytes}})
		}
		m := k.headers.Get().(*[]byte)
		check.PutHeader(*m, orBytes(b.element), site)
		n := copy((*m)[check.HeaderSize:], b.bytes)
		err := c.e.Sends.Send(c.context, (*m)[:check.HeaderSize+n], c.worldRank(dst), tag)
		k.headers.Put(m)
		return err
	}
	r, err := c.checkedIsend(b, dst, tag, sync)
	if err == nil {
		var st engine.Status
		st, err = c.e.Requests.Wait(r.h)
		k.waitedFor(c, r.h, &st, err)
	}
	return err
}

// checkedRecv is Recv in checking mode.
func (c *Comm) checkedRecv(b *buffer, src, tag int) (st engine.Status, err error) {
	k := c.checker
	if c.canceller == nil && b.isShort() {
		if k.operations.Any() {
			site := k.sites.Here()
			k.operations.Look(&check.Operation{Site: site, With: c.with(site.Call, src, tag),
				Writes: [][]byte{b.bytes}})
		}
		m := k.headers.Get().(*[]byte)
		into := (*m)[:check.HeaderSize+len(b.bytes)]
		err = c.e.Recvs.Recv(c.context, into, c.worldRank(src), tag, b.elem, &st)
		withoutHeader(err)
		n := max(0, min(st.Bytes-check.HeaderSize, len(b.bytes)))
		copy(b.bytes, (*m)[check.HeaderSize:][:n])
		if err == nil && !check.SameLayout(*m, orBytes(b.element)) {
			k.sameType(c, *m, b.element, &st, k.sites.Here())
		}
		k.headers.Put(m)
		return st, err
	}
	r, err := c.checkedIrecv(b, src, tag)
	if err == nil {
		st, err = c.e.Requests.Wait(r.h)
		k.waitedFor(c, r.h, &st, err)
	}
	return st, err
}

// checkedIsend begins a send in checking mode.
func (c *Comm) checkedIsend(b *buffer, dst, tag int, sync bool) (Request, error) {
	r, pieces := &checkedRequest{}, b.pieces()
	r.Site, r.Reads = c.checker.sites.Here(), pieces // the program's memory, although a copy may be sent
	if b.layout != nil {                             // a vector of two buffers
		packed := make([]byte, b.layout.Bytes())
		b.layout.Gather(b.memory, packed)
		pieces = [][]byte{packed}
	}
	r.With = c.with(r.Site.Call, dst, tag)
	check.PutHeader(r.head[:], orBytes(b.element), r.Site)
	begin := c.e.Sends.IsendVec
	if sync {
		begin = c.e.Sends.IssendVec
	}
	c.checker.operations.Begin(&r.Operation)
	h, err := begin(c.context, r.withHeader(pieces), c.worldRank(dst), tag)
	return c.begunChecked(r, h, err)
}

// checkedIrecv begins a receive in checking mode.
func (c *Comm) checkedIrecv(b *buffer, src, tag int) (Request, error) {
	r, pieces := c.newCheckedRecv(b, src, tag)
	if b.sized != nil {
		b.sized.Head = r.head[:]
		h, err := c.e.Recvs.IrecvSized(c.context, b.sized, c.worldRank(src), tag, b.elem)
		return c.begunChecked(r, h, err)
	}
	h, err := c.e.Recvs.IrecvVec(c.context, r.withHeader(pieces), c.worldRank(src), tag, b.elem)
	return c.begunChecked(r, h, err)
}

// checkedImrecv begins the receive of a message that was probed, in checking mode.
func (c *Comm) checkedImrecv(m *Message, b *buffer) (Request, error) {
	r, pieces := c.newCheckedRecv(b, m.source, m.tag)
	h, err := c.e.Probes.ImrecvVec(m.m, r.withHeader(pieces), b.elem)
	return c.begunChecked(r, h, err)
}

func (c *Comm) newCheckedRecv(b *buffer, src, tag int) (*checkedRequest, [][]byte) {
	r, pieces := &checkedRequest{element: orBytes(b.element)}, b.pieces()
	r.Site, r.Writes = c.checker.sites.Here(), pieces
	r.With = c.with(r.Site.Call, src, tag)
	c.checker.operations.Begin(&r.Operation)
	return r, pieces
}

// withHeader returns a message preceded by its header.
func (r *checkedRequest) withHeader(pieces [][]byte) [][]byte {
	return append(append(r.vec[:0], r.head[:]), pieces...)
}

func (c *Comm) begunChecked(r *checkedRequest, h engine.Request, err error) (Request, error) {
	if err != nil {
		c.checker.operations.Drop(&r.Operation)
		return Request{}, err
	}
	c.checker.track(c, h, r)
	return c.begun(h, nil)
}
