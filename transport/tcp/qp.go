package tcp

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// qp is one end of a connection in RDMA mode.
type qp struct {
	verbs.NoGetter

	// What every message looks at stands together: between two system calls the nearest caches have been used
	// by the kernel.
	sequencer          sequencer   // carries its frames
	inline             *singleLink // the link, if a Write may go over it past the queue; else nil
	open               bool        // false once nothing is sent and placed any more
	state              transport.State
	blocked            bool // no link has room
	awaitingFirstFrame bool // responder that has not seen a frame yet: it sends none
	checked            bool // agreed.checksum, where every frame looks for it
	placedReported     bool // is in rcq.placed
	peerEnd            bool // the peer's Close has come
	closing            closing

	// Sending: see sendcursor.go.
	sq        verbs.SendQueue
	at        cursor        // what goes out next
	responses responseQueue // reads of the peer that are to be answered
	scq       *cq

	// Receiving: see conn.go and frame*.go.
	rcq       *cq
	pd        *verbs.PD
	dev       *Device
	rq        verbs.RecvQueue
	recvMsn   uint64 // number of the untagged message that is due
	recvOff   int    // bytes of it that are placed, where a connection is alone
	askedNext uint64 // least number that the peer's next Read may have

	written   cursor // up to here everything has left, or over lanes is acknowledged
	agreed    agreement
	readLimit uint64 // our Reads and Atomics outstanding at once: both sides' limits
	read      uint64 // of them that are done

	windows verbs.Bindings
	limits  verbs.Limits

	conf   transport.QPConfig
	num    transport.QPN
	peer   uint32
	local  string
	remote string
	err    error

	released atomic.Bool // by the acceptor; the endpoint looks at it
}

// closing is how far our half of an orderly close has got.
type closing uint8

const (
	_ closing = iota // not asked for; left by Close
	// posted work goes out first, then the Close frame; left when the frame is written
	closeDue
	closeSent // final
)

// checkConfig refuses a shape that no QP of this device can have.
func (d *Device) checkConfig(conf transport.QPConfig) error {
	p, ok1 := conf.PD.(*verbs.PD)
	scq, ok2 := conf.SendCQ.(*cq)
	rcq, ok3 := conf.RecvCQ.(*cq)
	switch {
	case !ok1 || !ok2 || !ok3 || !p.Of(d.regions) || scq.dev != d || rcq.dev != d:
		return fmt.Errorf("%w: the queue pair's domain and queues are not of this device",
			transport.ErrInvalid)
	case !scq.handling.SameLock(&rcq.handling):
		return handlers.ErrLocks
	}
	return verbs.CheckShape(&conf, maxDepth, maxReads)
}

// newQP makes a QP, of a shape that has been checked. The caller gives it a sequencer. It may run beside the
// device's driver, who gets to know the QP when it is handed over.
func (d *Device) newQP(conf transport.QPConfig, peer uint32, local, remote string, initiator bool,
	agreed agreement) *qp {
	p, scq, rcq := conf.PD.(*verbs.PD), conf.SendCQ.(*cq), conf.RecvCQ.(*cq)
	q := &qp{
		dev: d, pd: p, scq: scq, rcq: rcq, conf: conf, peer: peer, local: local, remote: remote,
		open: true, state: transport.StateReady, awaitingFirstFrame: !initiator,
		readLimit: uint64(min(conf.Reads, agreed.peerReads)),
		agreed:    agreed, checked: agreed.checksum,
	}
	q.at.greeted = !initiator
	q.written = q.at
	q.num = transport.QPN(d.lastQP.Add(1))
	q.windows.QP = q.num
	q.limits = verbs.Limits{SGE: maxSGE, Segments: frame.MaxSegments, Inline: maxInline, Message: maxMessage,
		Offset: maxMessage, Reads: int(q.readLimit)}
	p.QPs.Add(1)
	scq.users.Add(1)
	if rcq != scq {
		rcq.users.Add(1)
	}
	return q
}

func (q *qp) Num() transport.QPN     { return q.num }
func (q *qp) State() transport.State { return q.state }
func (q *qp) Err() error             { return q.err }

// Released tells whether the acceptor has released it. It may be called from any goroutine.
func (q *qp) Released() bool { return q.released.Load() }

// Query tells the QP's context (N9).
func (q *qp) Query() transport.QPAttr {
	return transport.QPAttr{
		QPConfig: q.conf, Num: q.num, State: q.state, Peer: q.peer, Local: q.local, Remote: q.remote,
		PeerRecv: q.agreed.peerRecv, PeerReads: q.agreed.peerReads, Lanes: q.agreed.lanes,
		Checksum: q.agreed.checksum,
	}
}

// drive is one pass: out, then in. It tells whether anything came.
func (q *qp) drive() (came bool) { return q.open && q.sequencer.drive() }

// rewatch has the pollers look for room to write on a link exactly while that is wanted, where they look at
// all. A QP that is not attached yet is told so when it is.
func (q *qp) rewatch(c *conn) {
	q.blocked = !q.sequencer.hasRoom()
	q.scq.rewatchConn(c)
	if q.rcq != q.scq {
		q.rcq.rewatchConn(c)
	}
}

// PostRecv queues room for one message.
func (q *qp) PostRecv(wr *transport.RecvWR) error {
	if err := q.pd.CheckRecv(wr, &q.limits); err != nil {
		return err
	}
	if q.state == transport.StateClosed || q.state == transport.StateError {
		q.rcq.Push(q.flushed(wr.ID, transport.OpRecv))
		if wr.Notify {
			q.rcq.Raise()
		}
		return nil
	}
	if !q.rq.Post(wr, q.conf.RecvWR) {
		return transport.ErrQueueFull
	}
	return nil
}

// Close begins the orderly close of our direction.
func (q *qp) Close() {
	switch q.state {
	case transport.StateReady, transport.StateDraining:
		q.state = transport.StateClosing
		q.closing = closeDue
		q.sequencer.transmit()
	}
}

// Abort cuts the connection.
func (q *qp) Abort(cause error) {
	if cause == nil {
		cause = errors.New("aborted")
	}
	q.fail(cause, transport.StatusFlushed)
}

// Release gives the QP back.
func (q *qp) Release() {
	if q.pd == nil {
		return
	}
	if q.state != transport.StateClosed && q.state != transport.StateError {
		q.Abort(errors.New("released"))
	}
	q.dev.unknow(q)
	for _, c := range []*cq{q.scq, q.rcq} {
		c.forget(q)
	}
	q.pd.QPs.Add(-1)
	q.scq.users.Add(-1)
	if q.rcq != q.scq {
		q.rcq.users.Add(-1)
	}
	q.pd = nil
	q.released.Store(true)
	q.dev.end.table.Released(q.peer, q)
}

// closed ends the QP when both directions have ended in order.
func (q *qp) maybeClosed() {
	if q.peerEnd && q.closing == closeSent && q.state != transport.StateClosed {
		q.state = transport.StateClosed
		q.disconnect()
		q.flush(transport.StatusFlushed)
	}
}

// forget drops what the queue still holds of a QP.
func (c *cq) forget(q *qp) {
	c.detach(q)
	c.placed = slices.DeleteFunc(c.placed, func(o *qp) bool { return o == q })
	c.completions.Forget(q.num)
}
