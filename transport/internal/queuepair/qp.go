package queuepair

import (
	"errors"
	"fmt"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// Provider is the provider's part of a queue pair. Its methods are called by the queue pair's driver.
type Provider interface {
	// StartClose sends the posted requests and then, once CloseDue, this end's Close.
	StartClose()

	// TellFailed sends the peer the reason why the queue pair ends, if it can be sent at once.
	TellFailed(cause error)

	// Disconnect closes the connection and detaches the queue pair from its completion queues. Nothing is
	// sent or placed after it.
	Disconnect()

	// Gone releases the queue pair's resources of its device and endpoint.
	Gone()
}

// QP is the common part of a queue pair: its state, its queues, and the completion of posted requests. It
// does not know the connection.
type QP struct {
	state   transport.State
	closing closing
	peerEnd bool // the peer's Close was received
	placed  bool // in RecvCQ's list

	SQ             verbs.SendQueue
	RQ             verbs.RecvQueue
	PD             *verbs.PD // nil once released
	SendCQ, RecvCQ *CQ
	Message        Message
	Limits         verbs.Limits
	Attr           transport.QPAttr // except State

	err       error
	provider  Provider
	askedNext uint64      // smallest valid number of the peer's next Read or Atomic
	released  atomic.Bool // by the acceptor; read by the endpoint
}

// closing is the state of this end's half of an orderly close.
type closing uint8

const (
	_ closing = iota // not closing; left by Close
	// posted work goes out first, then the Close; left when that has been sent
	closeDue
	closeSent // final
)

var (
	// ErrTerminated marks an error that the peer reported, so that it is not sent back to the peer.
	ErrTerminated = errors.New("terminated by the peer")

	// ErrSilent marks the loss of a peer that sends nothing although the connection is open.
	ErrSilent = errors.New("silent")
)

// Init makes q a connected queue pair. The shape in a has been checked.
func (q *QP) Init(a transport.QPAttr, l verbs.Limits, p Provider) {
	q.Attr, q.Limits, q.provider, q.state = a, l, p, transport.StateReady
	q.PD, q.SendCQ, q.RecvCQ = a.PD.(*verbs.PD), coreOf(a.SendCQ), coreOf(a.RecvCQ)
	q.PD.QPs.Add(1)
	for _, c := range q.queues() {
		c.users.Add(1)
	}
}

// Core returns the common part of a provider's queue pair.
func (q *QP) Core() *QP { return q }

// Num returns the queue pair's number.
func (q *QP) Num() transport.QPN { return q.Attr.Num }

// State returns the queue pair's state.
func (q *QP) State() transport.State { return q.state }

// Err returns the error that ended the queue pair.
func (q *QP) Err() error { return q.err }

// Released reports whether the acceptor has released it. It may be called from any goroutine.
func (q *QP) Released() bool { return q.released.Load() }

// Query returns the queue pair's attributes (N9).
func (q *QP) Query() transport.QPAttr {
	a := q.Attr
	a.State = q.state
	a.SendHandler, a.RecvHandler = q.SendCQ.handling.By(), q.RecvCQ.handling.By()
	return a
}

// Ended reports whether the queue pair has ended, in order or not.
func (q *QP) Ended() bool { return q.state == transport.StateClosed || q.state == transport.StateError }

// Accepts reports whether work may be posted.
func (q *QP) Accepts() bool {
	return q.state == transport.StateReady || q.state == transport.StateDraining
}

// queues returns the completion queues, each once.
func (q *QP) queues() []*CQ {
	if q.SendCQ == q.RecvCQ {
		return []*CQ{q.SendCQ}
	}
	return []*CQ{q.SendCQ, q.RecvCQ}
}

// other returns the other completion queue of the queue pair, or c if both are the same.
func (q *QP) other(c *CQ) *CQ {
	if c == q.SendCQ {
		return q.RecvCQ
	}
	return q.SendCQ
}

// Post checks a request and queues it.
func (q *QP) Post(wr *transport.SendWR) error {
	if !q.Accepts() {
		return fmt.Errorf("%w: it is %v (rank %d at %s)", transport.ErrState, q.state, q.Attr.Peer,
			q.Attr.Remote)
	}
	total, err := q.PD.CheckSend(wr, &q.Limits)
	if err != nil {
		return err
	}
	if !q.SQ.Post(wr, total, q.Attr.SendWR) {
		return transport.ErrQueueFull
	}
	return nil
}

// PostRecv queues room for one message.
func (q *QP) PostRecv(wr *transport.RecvWR) error {
	if err := q.PD.CheckRecv(wr, &q.Limits); err != nil {
		return err
	}
	if q.Ended() {
		q.RecvCQ.Push(q.flushed(wr.ID, transport.OpRecv))
		if wr.Notify {
			q.RecvCQ.Raise()
		}
		return nil
	}
	if !q.RQ.Post(wr, q.Attr.RecvWR) {
		return transport.ErrQueueFull
	}
	return nil
}

// Retire completes requests from the head of SQ, in order, up to the first that is not done.
func (q *QP) Retire() {
	for q.SQ.Head != q.SQ.Tail {
		w := q.SQ.At(q.SQ.Head)
		if !w.Done {
			return
		}
		q.SQ.Head++ // first: if the queue overruns, Push flushes the rest
		q.Complete(w)
	}
}

// Complete adds the completion of a request that has succeeded, if it is signaled.
func (q *QP) Complete(w *verbs.Request) {
	if w.Flags&transport.FlagSignaled != 0 {
		q.SendCQ.Push(transport.WC{ID: w.ID, QP: q.Attr.Num, Op: w.Op, Bytes: w.Got})
		if w.Flags&transport.FlagNotify != 0 {
			q.SendCQ.Raise()
		}
	}
}

// Received completes the oldest Recv.
func (q *QP) Received(wc transport.WC, solicited bool) {
	e := q.RQ.Front()
	notify := e.Notify
	wc.ID, wc.QP, wc.Op = e.ID, q.Attr.Num, transport.OpRecv
	q.RQ.Pop() // first: if the queue overruns, Push flushes the posted Recvs
	q.RecvCQ.Push(wc)
	if solicited {
		q.RecvCQ.Match(transport.NotifySolicited)
	}
	if notify {
		q.RecvCQ.Raise()
	}
}

// ReportPlaced makes CQ.Placed report the queue pair.
func (q *QP) ReportPlaced() {
	if !q.placed {
		q.placed = true
		q.RecvCQ.placed = append(q.RecvCQ.placed, q)
		q.RecvCQ.Match(transport.NotifyPlaced)
	}
}

// Close begins the orderly close of this direction.
func (q *QP) Close() {
	if q.Accepts() {
		q.state, q.closing = transport.StateClosing, closeDue
		q.provider.StartClose()
	}
}

// CloseDue reports whether this end's Close must be sent, after all posted requests.
func (q *QP) CloseDue() bool { return q.closing == closeDue }

// CloseSent notes that this end's Close was sent.
func (q *QP) CloseSent() {
	q.closing = closeSent
	q.MaybeClosed()
}

// PeerClosed notes that the peer has closed its direction. The caller must call MaybeClosed after it.
func (q *QP) PeerClosed() {
	q.peerEnd = true
	if q.err == nil {
		q.err = fmt.Errorf("rank %d at %s: %w", q.Attr.Peer, q.Attr.Remote, transport.ErrClosed)
	}
	if q.state == transport.StateReady {
		q.state = transport.StateDraining
	}
}

// PeerEnd reports whether the peer has closed its direction.
func (q *QP) PeerEnd() bool { return q.peerEnd }

// MaybeClosed ends the queue pair when both directions are closed.
func (q *QP) MaybeClosed() {
	if q.peerEnd && q.closing == closeSent && !q.Ended() {
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

// Fail ends the queue pair with its first error, with which the oldest request completes. The error is sent
// to the peer, unless it came from the peer or the peer is lost.
func (q *QP) Fail(cause error, status transport.Status) {
	if q.Ended() {
		return
	}
	q.err = q.blame(cause)
	q.state = transport.StateError
	if !errors.Is(cause, ErrTerminated) &&
		(!errors.Is(cause, transport.ErrPeerLost) || errors.Is(cause, ErrSilent)) {
		q.provider.TellFailed(cause)
	}
	q.end(transport.StateError, status)
}

// FailRecv is Fail for a wrong message of the peer: the Recv that it would have used completes with a status
// of its own.
func (q *QP) FailRecv(cause error, recv transport.Status, why error) {
	if r := q.RQ.Front(); r != nil {
		wc := q.flushed(r.ID, transport.OpRecv)
		wc.Status, wc.Err = recv, q.blame(why)
		q.RQ.Pop()
		q.RecvCQ.Push(wc)
	}
	q.Fail(cause, transport.StatusFlushed)
}

// RegionGone fails because a region of a posted request was deregistered before its bytes were sent.
func (q *QP) RegionGone(w *verbs.Request) {
	w.Failed = transport.StatusLocalProt
	q.Fail(fmt.Errorf("%w: a region of a posted request was deregistered before it was sent",
		transport.ErrInvalid), transport.StatusFlushed)
}

// blame adds the peer to an error.
func (q *QP) blame(cause error) error {
	return fmt.Errorf("connection with rank %d at %s: %w", q.Attr.Peer, q.Attr.Remote, cause)
}

// end completes all posted requests.
func (q *QP) end(final transport.State, status transport.Status) {
	q.state = final
	q.provider.Disconnect()
	verbs.Flush(&q.SQ, &q.RQ, q.SendCQ, q.RecvCQ, status, q.flushed)
}

func (q *QP) flushed(id uint64, op transport.Opcode) transport.WC {
	err := q.err
	if err == nil {
		err = transport.ErrClosed
	}
	return transport.WC{ID: id, QP: q.Attr.Num, Op: op, Status: transport.StatusFlushed, Err: err}
}

// Release frees the queue pair.
func (q *QP) Release() {
	if q.PD == nil {
		return
	}
	if !q.Ended() {
		q.Abort(errors.New("released"))
	}
	for _, c := range q.queues() {
		c.forget(q)
		c.users.Add(-1)
	}
	q.PD.QPs.Add(-1)
	q.PD = nil
	q.released.Store(true)
	q.provider.Gone()
}

// Admit makes the last check of a queue pair that is attached to c: it fails if c is overrun, or has another
// lock than the queue pair's other queue. It reports whether the queue pair is still open.
func (q *QP) Admit(c *CQ) bool {
	if err := c.completions.Err(); err != nil {
		q.Fail(err, transport.StatusFatal)
	} else if !c.handling.SameLock(&q.other(c).handling) {
		q.Fail(handlers.ErrLocks, transport.StatusFatal)
	}
	return !q.Ended()
}
