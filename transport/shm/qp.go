package shm

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handlers"
)

// qp is one end of a connection.
type qp struct {
	direct // first: all that a small Write needs

	dev      *Device
	scq, rcq *cq
	conf     transport.QPConfig
	num      transport.QPN
	peer     uint32
	local    string
	remote   string

	state transport.State
	err   error

	released uatomic.Bool // by the acceptor; the endpoint looks at it
	lost     uatomic.Bool // the connection has ended; the driver looks at it

	link *link
	far  *far
	out  outRing
	in   inRing

	// Sending: see transmit.go.
	sq      sendQueue
	next    uint32 // of the send queue: what goes out next
	answers answerQueue
	closing closing
	peers   peerLimits
	most    uint64 // our Reads and Atomics outstanding at once: both sides' limits
	began   uint64 // Reads and Atomics
	read    uint64 // of them that are done
	nextMsn uint64 // number of the next untagged message that is posted
	readNo  uint64 // number of the next Read or Atomic that is posted
	busy    bool   // there is something to do here: it is in the active list of its queues
	stage   stage
	waits   bool // for the peer to carry out frames

	windows map[*window]struct{} // bound to this queue pair; nil before the first

	// Receiving: see receive.go.
	rq        recvQueue
	marked    bool              // is in rcq.placed
	wrote     uint64            // of block.wrote, what is known
	recvMsn   uint64            // number of the next untagged message that the peer begins
	recvOff   int               // bytes of it that are placed
	askedNext uint64            // least number that the peer's next Read may have
	peerEnd   bool              // the peer's Close has come
	control   [controlMost]byte // payload that is looked at as a whole
	silent    int               // ticks that counted since its last step
	beat      uint64            // of block.beat, what was last seen
}

// direct is what a Write that is carried out by the caller needs.
type direct struct {
	pd        *pd
	open      bool           // work may be posted, and nothing that was posted waits
	fenced    bool           // the system has no barrier for others: every mark has one, and key stays 0
	placing   *uint64        // in the peer's arena, as are the next two
	attention *uint64        //
	entry     *uint64        // where the key of the last Write is found
	key       transport.Key  // of the last Write; 0 for none
	base      unsafe.Pointer // of its region, mapped here
	length    uint64
	mark      uint64 // what placing has
}

// far is what a queue pair has of its peer's memory.
type far struct {
	mem    []byte        // the peer's arena
	domain uint32        // of the peer's queue pair
	num    transport.QPN // of that
	own    sys.Foreign   // the peer's own memory
	reads  bool          // it can be read
	queues []farQueue
}

// farQueue is a completion queue of the peer that is to be told.
type farQueue struct {
	*bell
	slot  uint32
	event int
}

// closing is how far our half of an orderly close has got.
type closing uint8

const (
	closeNotAsked closing = iota // left by Close
	closeDue                     // posted work goes out first, then the Close frame; left when the frame is written
	closeSent                    // final
)

// peerLimits is what the peer has said of its queue pair.
type peerLimits struct{ recv, reads int }

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

// prepared is a queue pair of which this end is there, and the peer's is not yet known.
type prepared struct {
	conf  transport.QPConfig
	num   transport.QPN
	in    *inbound
	slots [2]uint32 // in the send and in the receive queue
}

// prepareQP makes this end of a queue pair, of a shape that has been checked.
func (d *Device) prepareQP(conf transport.QPConfig) (*prepared, error) {
	in, err := newInbound(d.arena)
	if err != nil {
		return nil, fmt.Errorf("memory for a connection: %w", err)
	}
	p := &prepared{conf: conf, in: in, num: transport.QPN(d.lastQP.Add(1))}
	scq, rcq := conf.SendCQ.(*cq), conf.RecvCQ.(*cq)
	if p.slots[1], err = rcq.slot(); err == nil && scq != rcq {
		if p.slots[0], err = scq.slot(); err != nil {
			rcq.putSlot(p.slots[1])
		}
	}
	if err != nil {
		d.arena.putBlock(in.off)
		return nil, err
	}
	d.live.Lock()
	d.live.inbounds[in] = struct{}{}
	d.live.Unlock()
	return p, nil
}

// drop takes a prepared queue pair back. If the peer has been told of it the peer may use it yet: its block is retired then.
func (d *Device) drop(p *prepared, told bool) {
	scq, rcq := p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	rcq.putSlot(p.slots[1])
	if scq != rcq {
		scq.putSlot(p.slots[0])
	}
	if !told {
		d.live.Lock()
		delete(d.live.inbounds, p.in)
		d.live.Unlock()
		d.arena.putBlock(p.in.off)
	}
}

// newQP makes a QP of its prepared end, and what is known of the other.
func (d *Device) newQP(p *prepared, conn *net.UnixConn, peer uint32, local, remote string, theirs *offer, f *far) *qp {
	domain, scq, rcq := p.conf.PD.(*pd), p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	out := blockAt(f.mem, theirs.block)
	q := &qp{
		dev: d, scq: scq, rcq: rcq, conf: p.conf, num: p.num, peer: peer, local: local, remote: remote,
		state: transport.StateReady, far: f, out: outRing{block: out}, in: inRing{block: p.in.block},
		most: uint64(min(p.conf.Reads, theirs.reads)), peers: peerLimits{recv: theirs.recv, reads: theirs.reads},
	}
	q.direct = direct{pd: domain, open: true, fenced: !d.asymmetric || !theirs.asymmetric, placing: &out.placing, attention: &out.attention}
	q.link = &link{conn: conn, in: p.in, slots: p.slots}
	d.live.Lock()
	d.live.links[q.link] = struct{}{}
	d.live.Unlock()
	domain.qps.Add(1)
	scq.users.Add(1)
	if rcq != scq {
		rcq.users.Add(1)
	}
	d.wg.Go(func() { q.watch() })
	return q
}

// link is the connection of a queue pair. Each end closes its direction when it uses the other's memory no more, and so tells the other that.
type link struct {
	conn  *net.UnixConn
	in    *inbound
	slots [2]uint32
	stage span // that the peer may still copy from
	ended bool // we use the connection no more; guarded by Device.live
}

// watch waits for the end of the peer's direction: the peer has ended, in whatever way.
func (q *qp) watch() {
	var b [1]byte
	n, err := q.link.conn.Read(b[:])
	if n == 0 && !errors.Is(err, net.ErrClosed) { // who says something is not trusted to say when it ends
		q.link.in.gone.Store(true)
		q.dev.leave(q.link, false)
	}
	q.lose()
}

// leave notes that we use a connection no more, or that the peer does not. When neither does, the block serves again.
func (d *Device) leave(l *link, ended bool) {
	d.live.Lock()
	defer d.live.Unlock()
	if ended {
		l.ended = true
		_ = l.conn.CloseWrite() // fails if the connection is reset already
	}
	if _, known := d.live.links[l]; known && l.ended && l.in.gone.Load() {
		delete(d.live.links, l)
		delete(d.live.inbounds, l.in)
		l.conn.Close()
		d.arena.putBlock(l.in.off)
		if l.stage.n > 0 {
			_ = d.arena.put(l.stage, nil) // pages that stay are zeroed with the next use
		}
	}
}

// lose has the driver look at the end of the connection.
func (q *qp) lose() {
	q.lost.Store(true)
	q.scq.arrive()
	if q.rcq != q.scq {
		q.rcq.arrive()
	}
}

func (q *qp) Num() transport.QPN     { return q.num }
func (q *qp) State() transport.State { return q.state }
func (q *qp) Err() error             { return q.err }

// Query tells the QP's context (N9).
func (q *qp) Query() transport.QPAttr {
	return transport.QPAttr{
		QPConfig: q.conf, Num: q.num, State: q.state, Peer: q.peer, Local: q.local, Remote: q.remote,
		PeerRecv: q.peers.recv, PeerReads: q.peers.reads, Lanes: 1,
	}
}

// connected tells whether the connection stands, as far as this end knows.
func (q *qp) connected() bool { return q.far != nil }

// drive is one pass: out, then in. It tells whether anything came, or was done.
func (q *qp) drive() (found bool) {
	if !q.connected() {
		return false
	}
	if q.busy {
		found = q.transmit(true)
	}
	if q.connected() {
		found = q.receive() || found
	}
	if q.connected() && q.busy {
		found = q.transmit(false) || found
	}
	return found
}

// ended looks at a connection that has ended.
func (q *qp) ended() {
	for q.connected() && q.in.there() > 0 { // what the peer has said before
		q.receive()
	}
	if q.connected() {
		q.fail(fmt.Errorf("%w: the connection ended", transport.ErrPeerLost), transport.StatusFatal)
	}
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
		q.open = false
		q.closing = closeDue
		q.work()
		q.transmit(false)
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

// maybeClosed ends the QP when both directions have ended in order.
func (q *qp) maybeClosed() {
	if q.peerEnd && q.closing == closeSent && q.state != transport.StateClosed {
		q.state = transport.StateClosed
		q.disconnect()
		q.flush(transport.StatusFlushed)
	}
}

// fail ends the QP with its first error. The peer is told why.
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

// disconnect ends our use of the peer's memory, and has the peer end its use of ours.
func (q *qp) disconnect() {
	if !q.connected() {
		return
	}
	q.open = false
	q.scq.detach(q)
	if q.rcq != q.scq {
		q.rcq.detach(q)
	}
	in := q.link.in
	sys.StoreRelease(&in.block.attention, attentionTell|attentionClosed)
	q.dev.barrier()
	if mark := atomic.LoadUint64(&in.block.placing); mark&1 != 0 {
		await([]writer{{in, mark}})
	}
	q.unbindAll()
	q.far.close()
	q.far, q.out, q.in = nil, outRing{}, inRing{}
	q.placing, q.attention, q.entry, q.key, q.base = nil, nil, nil, 0, nil
	q.rcq.putSlot(q.link.slots[1])
	if q.scq != q.rcq {
		q.scq.putSlot(q.link.slots[0])
	}
	q.link.stage, q.stage = q.stage.memory, stage{}
	q.dev.leave(q.link, true)
}

func (f *far) close() {
	for _, c := range f.queues {
		sys.CloseFD(c.event)
	}
	_ = sys.UnmapShared(f.mem) // a mapping that is ours, as a whole
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
	q.next = q.sq.tail
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
