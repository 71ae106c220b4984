package tcp

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
)

// qp is one end of a connection in RDMA mode.
type qp struct {
	// What every message looks at stands together: between two system calls the nearest caches have been used by the kernel.
	fd      int     // -1 once the connection is closed
	secure  *secure // nil where the connection is not encrypted
	lanes   *bundle // nil where it is one connection and stays that: fd is none then
	state   transport.State
	blocked bool // the socket has no room; the poller watches for it
	quiet   bool // responder that has not seen a frame yet: it sends none
	checked bool // agreed.checksum, where every frame looks for it
	marked  bool // is in rcq.placed
	peerEnd bool // the peer's Close has come
	closing closing
	pulse   pulse

	// Sending: see transmit.go.
	sq      sendQueue
	at      cursor      // what goes out next
	answers answerQueue // reads of the peer that are to be answered
	scq     *cq
	carry   carry // the rest of a frame that the socket took in part

	// Receiving: see receive.go.
	rcq       *cq
	pd        *pd
	dev       *Device
	in        incoming
	rq        recvQueue
	recvMsn   uint64 // number of the next untagged message that the peer begins
	askedNext uint64 // least number that the peer's next Read may have

	written cursor // up to here the socket has taken everything
	agreed  agreement
	most    uint64 // our Reads and Atomics outstanding at once: both sides' limits
	read    uint64 // of them that are done
	nextMsn uint64 // number of the next untagged message that is posted
	readNo  uint64 // number of the next Read or Atomic that is posted

	windows map[*window]struct{} // bound to this queue pair; nil before the first

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
	closeNotAsked closing = iota // left by Close
	closeDue                     // posted work goes out first, then the Close frame; left when the frame is written
	closeSent                    // final
)

// checkConfig refuses a shape that no QP of this device can have.
func (d *Device) checkConfig(conf transport.QPConfig) error {
	p, ok1 := conf.PD.(*pd)
	scq, ok2 := conf.SendCQ.(*cq)
	rcq, ok3 := conf.RecvCQ.(*cq)
	switch {
	case !ok1 || !ok2 || !ok3 || p.dev != d || scq.dev != d || rcq.dev != d:
		return fmt.Errorf("%w: the queue pair's domain and queues are not of this device", transport.ErrInvalid)
	case conf.SendWR < 1 || conf.SendWR > maxDepth || conf.RecvWR < 1 || conf.RecvWR > maxDepth:
		return fmt.Errorf("%w: queues of depth %d and %d; 1 to %d are possible", transport.ErrInvalid, conf.SendWR, conf.RecvWR,
			maxDepth)
	case !scq.handling.SameLock(&rcq.handling):
		return handlers.ErrLocks
	case conf.Reads < 0 || conf.Reads > maxReads:
		return fmt.Errorf("%w: %d reads at once; at most %d are possible", transport.ErrInvalid, conf.Reads, maxReads)
	}
	return nil
}

// newQP makes a QP, of a shape that has been checked, of a descriptor that start-up has connected. It may run beside the device's
// driver, who gets to know the QP when it is handed over.
func (d *Device) newQP(fd int, conf transport.QPConfig, peer uint32, local, remote string, initiator bool, agreed agreement) *qp {
	p, scq, rcq := conf.PD.(*pd), conf.SendCQ.(*cq), conf.RecvCQ.(*cq)
	q := &qp{
		dev: d, pd: p, scq: scq, rcq: rcq, conf: conf, peer: peer, local: local, remote: remote,
		fd: fd, state: transport.StateReady, quiet: !initiator, pulse: newPulse(), most: uint64(min(conf.Reads, agreed.peerReads)),
		agreed: agreed, checked: agreed.checksum,
	}
	q.in.size = headerSizeWith(q.checked)
	q.at.greeted = !initiator
	q.written = q.at
	q.num = transport.QPN(d.lastQP.Add(1))
	p.qps.Add(1)
	scq.users.Add(1)
	if rcq != scq {
		rcq.users.Add(1)
	}
	return q
}

func (q *qp) Num() transport.QPN     { return q.num }
func (q *qp) State() transport.State { return q.state }
func (q *qp) Err() error             { return q.err }

// Query tells the QP's context (N9).
func (q *qp) Query() transport.QPAttr {
	return transport.QPAttr{
		QPConfig: q.conf, Num: q.num, State: q.state, Peer: q.peer, Local: q.local, Remote: q.remote,
		PeerRecv: q.agreed.peerRecv, PeerReads: q.agreed.peerReads, Lanes: q.agreed.lanes, Checksum: q.agreed.checksum,
	}
}

// drive is one pass: out, then in. It tells whether anything came.
func (q *qp) drive() (came bool) {
	if q.fd < 0 {
		return false
	}
	if q.lanes != nil {
		return q.lanes.drive()
	}
	if q.hasOutput() {
		q.transmit()
	}
	if q.fd < 0 {
		return false
	}
	came, due := q.receive()
	if due && q.fd >= 0 && q.hasOutput() {
		q.transmit()
	}
	return came
}

// PostRecv queues room for one message.
func (q *qp) PostRecv(wr *transport.RecvWR) error {
	if wr == nil {
		return fmt.Errorf("%w: none", transport.ErrInvalid)
	}
	if len(wr.Local) > maxSGE {
		return fmt.Errorf("%w: a scatter list of %d elements; at most %d are possible", transport.ErrInvalid, len(wr.Local), maxSGE)
	}
	for _, s := range wr.Local {
		if _, err := q.pd.local(s, transport.LocalWrite); err != nil {
			return err
		}
	}
	if q.state == transport.StateClosed || q.state == transport.StateError {
		q.rcq.push(q.flushed(wr.ID, transport.OpRecv))
		if wr.Notify {
			q.rcq.raise()
		}
		return nil
	}
	if !q.rq.push(wr, q.conf.RecvWR) {
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
		q.transmit()
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
	q.pd.qps.Add(-1)
	q.scq.users.Add(-1)
	if q.rcq != q.scq {
		q.rcq.users.Add(-1)
	}
	q.pd = nil
	q.released.Store(true)
	q.dev.end.released(q)
}

// closed ends the QP when both directions have ended in order.
func (q *qp) maybeClosed() {
	if q.peerEnd && q.closing == closeSent && q.state != transport.StateClosed {
		q.state = transport.StateClosed
		q.disconnect()
		q.flush(transport.StatusFlushed)
	}
}

// fail ends the QP with its first error. The peer is told if the socket takes it at once.
func (q *qp) fail(cause error, status transport.Status) {
	if q.state == transport.StateClosed || q.state == transport.StateError {
		return
	}
	q.err = q.blame(cause)
	q.state = transport.StateError
	q.tellTerminate(cause)
	q.disconnect()
	q.flush(status)
}

// blame says with whom it happened.
func (q *qp) blame(cause error) error {
	return fmt.Errorf("connection with rank %d at %s: %w", q.peer, q.remote, cause)
}

func (q *qp) disconnect() {
	if q.fd < 0 {
		return
	}
	q.scq.detach(q)
	if q.rcq != q.scq {
		q.rcq.detach(q)
	}
	if q.lanes != nil {
		q.lanes.disconnect()
	} else {
		sys.CloseFD(q.fd)
	}
	q.fd = -1
	q.unbindAll()
}

// flush completes what is posted: the oldest send request with the status of the failure, all others flushed, in order. What stood
// done behind a request that was not is flushed too: nothing succeeds behind a failure.
func (q *qp) flush(first transport.Status) {
	for q.sq.head != q.sq.tail {
		w := q.sq.at(q.sq.head)
		wc := q.flushed(w.id, w.op)
		wc.Status = first
		if w.failed != 0 {
			wc.Status = w.failed
		}
		first = transport.StatusFlushed
		q.scq.push(wc)
		if w.flags&transport.FlagNotify != 0 {
			q.scq.raise()
		}
		q.sq.head++
	}
	for {
		r := q.rq.front()
		if r == nil {
			break
		}
		q.rcq.push(q.flushed(r.id, transport.OpRecv))
		if r.notify {
			q.rcq.raise()
		}
		q.rq.pop()
	}
	q.answers = answerQueue{}
}

func (q *qp) flushed(id uint64, op transport.Opcode) transport.WC {
	err := q.err
	if err == nil {
		err = transport.ErrClosed
	}
	return transport.WC{ID: id, QP: q.num, Op: op, Status: transport.StatusFlushed, Err: err}
}

// forget drops what the queue still holds of a QP.
func (c *cq) forget(q *qp) {
	c.detach(q)
	c.placed = slices.DeleteFunc(c.placed, func(o *qp) bool { return o == q })
	kept := c.head
	for i := c.head; i != c.tail; i++ {
		if wc := c.ring[i&uint32(len(c.ring)-1)]; wc.QP != q.num {
			c.ring[kept&uint32(len(c.ring)-1)] = wc
			kept++
		}
	}
	c.tail = kept
}
