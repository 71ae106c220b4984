package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// qp is one end of a connection in RDMA mode.
type qp struct {
	verbs.NoDirectCopier

	// Fields that every message uses are adjacent: the kernel's code evicts them from the nearest caches in
	// each system call.
	sequencer          sequencer   // carries its frames
	inline             *singleLink // the link, if a Write may go over it past the queue; else nil
	open               bool        // false once nothing is sent and placed any more
	blocked            bool        // no link has room
	awaitingFirstFrame bool        // responder that has not seen a frame yet: it sends none
	checked            bool        // agreed.Checksum, where every frame looks for it
	answering          bool        // a long Write has been sent since the last one came

	queuepair.QP

	// Sending: see sendcursor.go.
	at        cursor                   // what goes out next
	responses ring.Queue[readResponse] // reads of the peer that are to be answered
	scq       *cq

	// Receiving: see conn.go and frame*.go.
	rcq     *cq
	dev     *Device
	recvMsn uint64 // number of the untagged message that is due
	recvOff int    // bytes of it that are placed, where a connection is alone

	written cursor // up to here everything has left, or over lanes is acknowledged
	agreed  message.Agreement
	read    uint64 // Reads and Atomics of ours that are done

	answered        transport.ReadStats // of the peer's
	answerElsewhere bool                // the next answer waits for another lane
}

// newQP makes a QP, of a shape that has been checked. The caller gives it a sequencer. It may run beside the
// device's driver, who gets to know the QP when it is handed over.
func (d *Device) newQP(conf transport.QPConfig, peer uint32, local, remote string, initiator bool,
	agreed message.Agreement) *qp {
	q := &qp{
		dev: d, scq: conf.SendCQ.(*cq), rcq: conf.RecvCQ.(*cq), open: true, awaitingFirstFrame: !initiator,
		agreed: agreed, checked: agreed.Checksum,
	}
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

// drive is one pass: out, then in. It reports whether anything came.
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

// StartClose sends what is posted and, after that, our Close.
func (q *qp) StartClose() { q.sequencer.transmit() }

// Gone makes room at the endpoint.
func (q *qp) Gone() {
	q.dev.unknow(q)
	q.dev.end.table.Released(transport.PeerAt(q.Attr.Peer, q.Attr.Port), q)
}
