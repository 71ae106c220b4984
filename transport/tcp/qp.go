package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// qp is one end of a connection in RDMA mode.
type qp struct {
	verbs.NoDirectCopier

	// Fields that every message uses are adjacent: the kernel's code evicts them from the nearest caches in
	// each system call.
	sequencer          sequencer   // sends and receives its frames
	inline             *singleLink // the link, if WriteInline may use it; else nil
	open               bool        // false once nothing is sent or placed any more
	blocked            bool        // no link has room
	awaitingFirstFrame bool        // responder that has not received a frame yet: it must not send
	checked            bool        // agreed.Checksum, near the other fields of the fast path
	sentLongLast       bool        // a long Write was sent after the last one was received

	queuepair.QP

	// Sending: see sendcursor.go.
	at     cursor // the next frame
	answer responder
	scq    *cq

	// Receiving: see conn.go and frame*.go.
	rcq *cq
	dev *Device

	written cursor // everything before it was sent, or over lanes is acknowledged
	agreed  message.Agreement
	read    uint64 // completed Reads and Atomics of ours
}

// newQP makes a QP with a shape that has been checked. The caller gives it a sequencer. It may run
// concurrently with the device's driver, which gets the QP when it is handed over.
func (d *Device) newQP(conf transport.QPConfig, peer uint32, local, remote string, initiator bool,
	agreed message.Agreement) *qp {
	q := &qp{
		dev: d, scq: conf.SendCQ.(*cq), rcq: conf.RecvCQ.(*cq), open: true, awaitingFirstFrame: !initiator,
		agreed: agreed, checked: agreed.Checksum,
	}
	q.answer.q = q
	q.scq.makeBuffers()
	q.rcq.makeBuffers()
	q.at.greeted = !initiator
	q.written = q.at
	q.Init(transport.QPAttr{
		QPConfig: conf, Num: d.NewQPN(), Peer: transport.RankOf(peer), Port: transport.PortOf(peer),
		Local: local, Remote: remote, PeerRecv: agreed.PeerRecv, PeerReads: agreed.Reads,
		Lanes: agreed.Lanes, Checksum: agreed.Checksum,
	}, verbs.Limits{SGE: maxSGE, Segments: frame.MaxSegments, Inline: maxInline, Message: maxMessage,
		Offset: maxMessage, Reads: agreed.Reads}, q)
	return q
}

// drive makes one pass: it sends, then receives. It reports whether anything was received.
func (q *qp) drive() (came bool) { return q.open && q.sequencer.drive() }

// rewatch makes the pollers watch a link for room to write only while that is wanted. A QP that is not
// attached yet is watched once it is.
func (q *qp) rewatch(c *conn) {
	q.blocked = !q.sequencer.hasRoom()
	q.scq.rewatchConn(c)
	if q.rcq != q.scq {
		q.rcq.rewatchConn(c)
	}
}

// StartClose sends the posted requests and, after them, this end's Close.
func (q *qp) StartClose() { q.sequencer.transmit() }

// Gone removes the queue pair from the endpoint's table.
func (q *qp) Gone() {
	q.dev.end.table.Released(transport.PeerAt(q.Attr.Peer, q.Attr.Port), q)
}
