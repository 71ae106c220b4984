package shm

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	uatomic "go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// qp is one end of a connection.
type qp struct {
	fastWrite // first: all that a small Write needs
	queuepair.QP

	verbs.NoQPPoller
	verbs.NoLanes

	dev      *Device
	scq, rcq *cq
	lost     uatomic.Bool // the connection has ended; read by the driver

	conn *connection
	peer *peerMapping
	out  frameWriter
	in   inRing

	busy bool // there is work at this end: it is in the active list of its queues

	send      sender
	reads     reader
	answer    responder
	recv      receiver
	heartbeat heartbeat
	writeSeq  uint64 // last seen value of the block's writeSeq
}

// fastWrite is the state that a Write needs that the caller carries out.
type fastWrite struct {
	pd   *verbs.PD // QP.PD, while open
	open bool      // work may be posted, and no posted request but Reads waits
	// one end lacks membarrier: every change of placementSeq is a full fence, and the fast path (key ≠ 0) is
	// never used
	fenced        bool
	placementSeq  *uint64     // in the peer's arena, as are the next two
	notifyEnable  *uint64     //
	writeTarget               // of the last Write
	before        writeTarget // of the Writes before it
	placementMark uint64      // local copy of *placementSeq, which only this end writes
}

// writeTarget is a region of the peer in the mapped arena.
type writeTarget struct {
	entry  *uint64        // its key in the peer's table
	key    transport.Key  // 0 for none
	base   unsafe.Pointer // of its memory
	length uint64
}

// peerMapping is a queue pair's access to its peer's memory.
type peerMapping struct {
	mem     []byte      // the peer's arena
	domain  uint32      // of the peer's queue pair
	outside sys.Foreign // the peer's memory outside its arena: process_vm_readv, process_vm_writev
	foreign bool        // outside can be read and written
	copying *copyWatch  // of copies from and to outside
	queues  []peerQueue
}

// peerQueue is a completion queue of the peer that this end notifies.
type peerQueue struct {
	*doorbell
	slot uint32
	wake *sys.WakeAddress
}

// prepared is this end of a queue pair whose peer is not yet known.
type prepared struct {
	conf  transport.QPConfig
	num   transport.QPN
	in    *receiveBlock
	slots [2]uint32 // in the send and in the receive queue
}

// prepareQP makes this end of a queue pair, with a shape that has been checked.
func (d *Device) prepareQP(conf transport.QPConfig) (*prepared, error) {
	in, err := newReceiveBlock(d.arena)
	if err != nil {
		return nil, fmt.Errorf("memory for a connection: %w", err)
	}
	p := &prepared{conf: conf, in: in, num: d.NewQPN()}
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

// drop releases a prepared queue pair. peer is the wake address of a peer that may still use it: the block is
// then retired until that peer's process has ended. If peer is nil, the block is recycled at once.
func (d *Device) drop(p *prepared, peer *sys.WakeAddress) {
	scq, rcq := p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	rcq.putSlot(p.slots[1])
	if scq != rcq {
		scq.putSlot(p.slots[0])
	}
	d.live.Lock()
	defer d.live.Unlock()
	l := &connection{in: p.in, wake: peer}
	if peer == nil {
		d.recycle(l)
		return
	}
	sys.StoreRelease(&p.in.block.notifyEnable, notifyTell|notifyClosed)
	d.live.retired = append(d.live.retired, l)
	d.liveness.start(d)
}

// newQP makes a QP of its prepared end and the peer's parameters.
func (d *Device) newQP(p *prepared, peer uint32, local, remote string, theirs *connectInfo,
	f *peerMapping) *qp {
	domain, scq, rcq := p.conf.PD.(*verbs.PD), p.conf.SendCQ.(*cq), p.conf.RecvCQ.(*cq)
	out := controlBlockAt(f.mem, theirs.block)
	reads := uint64(min(p.conf.Reads, theirs.reads))
	q := &qp{
		dev: d, scq: scq, rcq: rcq, peer: f,
		out: frameWriter{outRing: outRing{controlBlock: out}, arena: d.arena},
		in:  inRing{controlBlock: p.in.block},
	}
	q.reads, q.answer = reader{q: q, maxReads: reads}, responder{q: q, maxReads: reads}
	q.send, q.recv, q.heartbeat.q = sender{q: q}, receiver{q: q}, q
	q.Init(transport.QPAttr{
		QPConfig: p.conf, Num: p.num, Peer: transport.RankOf(peer), Port: transport.PortOf(peer),
		Local:  local,
		Remote: remote, PeerRecv: theirs.recv, PeerReads: int(reads), Lanes: 1,
	}, verbs.Limits{SGE: maxSGE, Segments: maxSegments, Inline: maxInline, Message: maxMessage,
		Offset: math.MaxUint64, Reads: int(reads)}, q)
	q.fastWrite = fastWrite{pd: domain, open: true, fenced: !d.asymmetric || !theirs.asymmetric,
		placementSeq: &out.placementSeq, notifyEnable: &out.notifyEnable}
	q.conn = &connection{qp: q, in: p.in, slots: p.slots, wake: f.queues[0].wake, outside: &f.outside}
	f.copying = &q.conn.copying
	d.live.Lock()
	d.live.links[q.conn] = struct{}{}
	d.live.Unlock()
	d.liveness.start(d)
	return q
}

// connection is the part of a queue pair that exists until neither end uses the other's memory any more.
type connection struct {
	qp      *qp
	in      *receiveBlock
	wake    *sys.WakeAddress // of the peer: exists as long as its process
	slots   [2]uint32
	stage   span // memory of the bounce buffer, from which the peer may still copy
	ended   bool // this end no longer uses the peer's memory; guarded by Device.live
	outside *sys.Foreign
	copying copyWatch
}

// leave notes that this end, or the peer, no longer uses a connection. When neither does, the block is
// reused; after an end that was not in order, only when the peer's process has ended: a rank that has broken
// the rules may continue to write there, and the block's next user is another rank.
func (d *Device) leave(l *connection, ended bool) {
	d.live.Lock()
	defer d.live.Unlock()
	l.ended = l.ended || ended
	if _, known := d.live.links[l]; !known || !l.ended || !l.in.ended() {
		return
	}
	delete(d.live.links, l)
	delete(d.live.inbounds, l.in)
	if !l.in.closed.Load() && !l.in.gone.Load() {
		d.live.retired = append(d.live.retired, l)
		return
	}
	d.recycle(l)
}

// recycle frees the memory of a connection for reuse. Device.live is locked.
func (d *Device) recycle(l *connection) {
	delete(d.live.inbounds, l.in)
	d.arena.putBlock(l.in.off)
	if l.stage.n > 0 {
		_ = d.arena.put(l.stage, nil) // if its pages cannot be freed, they are zeroed before they are reused
	}
}

// lose makes the driver check for the end of the connection.
func (q *qp) lose() {
	q.lost.Store(true)
	q.scq.Notify()
	if q.rcq != q.scq {
		q.rcq.Notify()
	}
}

// connected reports whether the connection is open, as far as this end knows.
func (q *qp) connected() bool { return q.peer != nil }

// drive makes one pass: it sends, then receives. It reports whether anything was received or done.
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

// ended handles the end of the connection.
func (q *qp) ended() {
	if q.connected() {
		q.receive() // frames that the peer sent before
	}
	if q.connected() && q.conn.copying.gaveUp.Load() {
		q.Fail(q.dev.errNoAnswer(q.conn.outside.Pid), transport.StatusFatal)
	}
	if q.connected() {
		q.Fail(fmt.Errorf("%w: the connection ended", transport.ErrPeerLost), transport.StatusFatal)
	}
}

// StartClose sends the posted requests and, after them, this end's Close.
func (q *qp) StartClose() {
	q.open = false
	q.work()
	q.transmit(false)
}

// Gone removes the queue pair from the endpoint's table.
func (q *qp) Gone() {
	q.pd = nil
	q.dev.end.table.Released(transport.PeerAt(q.Attr.Peer, q.Attr.Port), q)
}

// Disconnect ends this end's use of the peer's memory, and the peer's use of ours.
func (q *qp) Disconnect() {
	if !q.connected() {
		return
	}
	q.open = false
	q.scq.detach(q)
	if q.rcq != q.scq {
		q.rcq.detach(q)
	}
	in := q.conn.in
	sys.StoreRelease(&in.block.notifyEnable, notifyTell|notifyClosed)
	if q.State() == transport.StateClosed {
		in.closed.Store(true)
	} else {
		q.dev.barrier()
		if mark := atomic.LoadUint64(&in.block.placementSeq); mark&1 != 0 {
			q.dev.awaitWriter(writer{in, mark})
		}
	}
	q.out.end()
	q.tell()
	q.peer.close()
	q.conn.stage = q.out.bounce.memory
	q.peer, q.out, q.in = nil, frameWriter{}, inRing{}
	q.placementSeq, q.notifyEnable, q.writeTarget, q.before = nil, nil, writeTarget{}, writeTarget{}
	q.rcq.putSlot(q.conn.slots[1])
	if q.scq != q.rcq {
		q.scq.putSlot(q.conn.slots[0])
	}
	q.send.next, q.answer.responses = q.SQ.Tail, ring.Queue[readResponse]{}
	q.dev.leave(q.conn, true)
}

func (f *peerMapping) close() {
	_ = sys.UnmapShared(f.mem) // it was mapped as a whole
}
