package plain

import (
	"errors"
	"fmt"
	"math"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Carrier is the provider's part of a queue pair. Its methods are called by the queue pair's driver.
type Carrier interface {
	// Transmit carries out the requests of SQ from Next on, as far as that can be now, and marks them as
	// done; then it calls Retire.
	Transmit()

	// Drive takes in what the peer has said, and transmits. It tells whether anything came.
	Drive() bool

	// TellFailed tells the peer why the queue pair ends, if that can be said at once.
	TellFailed(cause error)

	// TellClosed tells the peer that this direction is closed: everything before it has gone.
	TellClosed()

	// Ended gives up what the connection needs. Gone does so for its place at the endpoint.
	Ended()
	Gone()
}

// QP is a queue pair. A provider embeds it in its own.
type QP struct {
	verbs.NoInlineWriter
	verbs.NoGetter
	verbs.NoQPPoller
	verbs.NoLanes

	PD             *verbs.PD // nil once released
	SendCQ, RecvCQ *CQ
	SQ             verbs.SendQueue
	RQ             verbs.RecvQueue
	Next           uint32 // of SQ: what goes out next
	Windows        verbs.Bindings
	Limits         verbs.Limits

	attr     transport.QPAttr
	number   transport.QPN
	state    transport.State
	err      error
	carrier  Carrier
	released atomic.Bool

	closeDue, closeSent, peerEnd bool
	marked                       bool // is in RecvCQ.placed
}

// CheckConfig refuses a shape that no QP of a device with these regions and handlers can have.
func CheckConfig(conf *transport.QPConfig, regions *verbs.Table, set *handlers.Set) error {
	p, ok1 := conf.PD.(*verbs.PD)
	scq, ok2 := conf.SendCQ.(*CQ)
	rcq, ok3 := conf.RecvCQ.(*CQ)
	if !ok1 || !ok2 || !ok3 || !p.Of(regions) || scq.set != set || rcq.set != set {
		return fmt.Errorf("%w: the queue pair's domain and queues are not of this device",
			transport.ErrInvalid)
	}
	if !scq.handling.SameLock(&rcq.handling) {
		return handlers.ErrLocks
	}
	attr := p.DeviceAttr()
	return verbs.CheckShape(conf, attr.MaxQPDepth, attr.MaxReads)
}

// Init makes q a connected queue pair, of a shape that has been checked.
func (q *QP) Init(a transport.QPAttr, c Carrier) {
	a.Lanes = 1
	q.attr, q.number, q.carrier, q.state = a, a.Num, c, transport.StateReady
	q.PD, q.SendCQ, q.RecvCQ = a.PD.(*verbs.PD), a.SendCQ.(*CQ), a.RecvCQ.(*CQ)
	q.Windows.QP = a.Num
	d := q.PD.DeviceAttr()
	q.Limits = verbs.Limits{SGE: d.MaxSGE, Segments: d.MaxSegments, Inline: d.MaxInline,
		Message: d.MaxMessage, Offset: math.MaxUint64, Reads: min(a.Reads, a.PeerReads)}
	q.PD.QPs.Add(1)
	for _, c := range q.queues() {
		c.users.Add(1)
	}
}

// HandOver gives the queue pair to the drivers of its queues. It may be called from any goroutine.
func (q *QP) HandOver() {
	for _, c := range q.queues() {
		c.handOver(q)
	}
}

// Num is the queue pair's number.
func (q *QP) Num() transport.QPN { return q.number }

// State tells where the QP is in its life.
func (q *QP) State() transport.State { return q.state }

// Err is what ended the QP.
func (q *QP) Err() error { return q.err }

// Released tells whether the acceptor has released it. It may be called from any goroutine.
func (q *QP) Released() bool { return q.released.Load() }

// Connected tells whether the QP has not ended.
func (q *QP) Connected() bool { return q.state < transport.StateClosed }

// Query tells the QP's context.
func (q *QP) Query() transport.QPAttr {
	a := q.attr
	a.State = q.state
	return a
}

// queues are the completion queues, each once.
func (q *QP) queues() []*CQ {
	if q.SendCQ == q.RecvCQ {
		return []*CQ{q.SendCQ}
	}
	return []*CQ{q.SendCQ, q.RecvCQ}
}

func (q *QP) other(c *CQ) *CQ {
	if c == q.SendCQ {
		return q.RecvCQ
	}
	return q.SendCQ
}

// Notify has the drivers make a pass. It may be called from any goroutine.
func (q *QP) Notify() {
	q.SendCQ.Notify()
	q.RecvCQ.Notify()
}

// PostSend checks a request, queues it, and transmits unless more is to follow.
func (q *QP) PostSend(wr *transport.SendWR) error {
	if q.state != transport.StateReady && q.state != transport.StateDraining {
		return fmt.Errorf("%w: it is %v (rank %d at %s)", transport.ErrState, q.state, q.attr.Peer,
			q.attr.Remote)
	}
	total, err := q.PD.CheckSend(&q.Windows, wr, &q.Limits)
	if err != nil {
		return err
	}
	if !q.SQ.Post(q.PD, &q.Windows, wr, total, q.attr.SendWR) {
		return transport.ErrQueueFull
	}
	if wr.Flags&transport.FlagMore == 0 {
		q.carrier.Transmit()
	} else {
		q.SendCQ.Notify()
	}
	return nil
}

// PostRecv queues room for one message.
func (q *QP) PostRecv(wr *transport.RecvWR) error {
	if err := q.PD.CheckRecv(wr, &q.Limits); err != nil {
		return err
	}
	if !q.Connected() {
		q.RecvCQ.Push(q.flushed(wr.ID, transport.OpRecv))
		if wr.Notify {
			q.RecvCQ.Raise()
		}
		return nil
	}
	if !q.RQ.Post(wr, q.attr.RecvWR) {
		return transport.ErrQueueFull
	}
	return nil
}

// Flush sends what FlagMore held back.
func (q *QP) Flush() { q.carrier.Transmit() }

// Retire completes requests from the head of SQ, in order, as far as they are done, and closes our direction
// if that is due.
func (q *QP) Retire() {
	for q.SQ.Head != q.SQ.Tail && q.SQ.At(q.SQ.Head).Done {
		w := q.SQ.At(q.SQ.Head)
		q.SQ.Head++ // first: if the queue is overrun, Push flushes the rest
		if w.Flags&transport.FlagSignaled != 0 {
			q.SendCQ.Push(transport.WC{ID: w.ID, QP: q.number, Op: w.Op, Bytes: w.Got})
			if w.Flags&transport.FlagNotify != 0 {
				q.SendCQ.Raise()
			}
		}
	}
	if q.Connected() && q.closeDue && !q.closeSent && q.SQ.Len() == 0 {
		q.closeSent = true
		q.carrier.TellClosed()
		q.maybeClosed()
	}
}

// Received completes the oldest Recv.
func (q *QP) Received(wc transport.WC, solicited bool) {
	e := q.RQ.Front()
	notify := e.Notify
	wc.ID, wc.QP, wc.Op = e.ID, q.number, transport.OpRecv
	q.RQ.Pop() // first: if the queue is overrun, Push flushes what is posted
	q.RecvCQ.Push(wc)
	if solicited {
		handlers.RaiseFor(q.RecvCQ, transport.NotifySolicited)
	}
	if notify {
		q.RecvCQ.Raise()
	}
}

// Placed notes that bytes were placed with no completion.
func (q *QP) Placed() {
	if !q.marked {
		q.marked = true
		q.RecvCQ.placed = append(q.RecvCQ.placed, q)
	}
	handlers.RaiseFor(q.RecvCQ, transport.NotifyPlaced)
}

// Close begins the orderly close of our direction.
func (q *QP) Close() {
	if q.state == transport.StateReady || q.state == transport.StateDraining {
		q.state, q.closeDue = transport.StateClosing, true
		q.carrier.Transmit()
	}
}

// PeerClosed notes that the peer has closed its direction.
func (q *QP) PeerClosed() {
	q.peerEnd = true
	q.err = fmt.Errorf("rank %d at %s: %w", q.attr.Peer, q.attr.Remote, transport.ErrClosed)
	if q.state == transport.StateReady {
		q.state = transport.StateDraining
	}
	q.maybeClosed()
}

func (q *QP) maybeClosed() {
	if q.peerEnd && q.closeSent && q.Connected() {
		q.end(transport.StateClosed, transport.StatusFlushed)
	}
}

// Abort cuts the connection.
func (q *QP) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted")
	}
	q.Fail(cause, transport.StatusFlushed)
}

// Fail ends the QP with its first error, with which the oldest request completes, and of which the peer is
// told.
func (q *QP) Fail(cause error, status transport.Status) {
	if q.Connected() {
		q.carrier.TellFailed(cause)
		q.err = fmt.Errorf("connection with rank %d at %s: %w", q.attr.Peer, q.attr.Remote, cause)
		q.end(transport.StateError, status)
	}
}

// end completes what is posted.
func (q *QP) end(final transport.State, status transport.Status) {
	q.state = final
	q.carrier.Ended()
	for _, c := range q.queues() {
		c.detach(q)
	}
	q.Windows.UnbindAll()
	verbs.Flush(&q.SQ, &q.RQ, q.SendCQ, q.RecvCQ, status, q.flushed)
	q.Next = q.SQ.Tail
}

func (q *QP) flushed(id uint64, op transport.Opcode) transport.WC {
	err := q.err
	if err == nil {
		err = transport.ErrClosed
	}
	return transport.WC{ID: id, QP: q.number, Op: op, Status: transport.StatusFlushed, Err: err}
}

// Release gives the QP back.
func (q *QP) Release() {
	if q.PD == nil {
		return
	}
	q.Abort(errors.New("released"))
	for _, c := range q.queues() {
		c.forget(q)
		c.users.Add(-1)
	}
	q.PD.QPs.Add(-1)
	q.PD = nil
	q.released.Store(true)
	q.carrier.Gone()
}
