package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/internal/violation"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

// frameSend is untagged: its payload goes into the posted Recv with its message's number.
type frameSend struct{}

// makeSend makes the next frame of a Send.
func (q *qp) makeSend(o *frame.Batch, w *verbs.Request) frameMade {
	c := &q.at
	n := min(w.Total-c.off, frame.MaxPayload)
	h := frame.Header{Length: n, Op: frame.Send, A: w.Number, B: uint64(c.off)}
	if c.off+n == w.Total {
		h.Flags = lastFlags(w)
	}
	if !q.payload(o, h, w, c.off, n) {
		return mustWait
	}
	if c.off += n; c.off == w.Total {
		c.next, c.off = c.next+1, 0
	}
	c.responseFirst = true
	return madeFrame
}

// lastFlags returns the flags of the frame that ends a message which consumes a Recv.
func lastFlags(w *verbs.Request) uint8 {
	if w.Flags&transport.FlagSolicited != 0 {
		return frame.Last | frame.Solicited
	}
	return frame.Last
}

func (frameSend) begin(q *qp, i *incoming) error {
	_, err := q.PeerSends(i.A, i.B, i.Length)
	i.recv, i.off = q.RQ.Head, q.Message.Placed
	return err
}

func (frameSend) end(q *qp, i *incoming) error {
	q.Message.Placed = i.off
	if i.Flags&frame.Last != 0 {
		q.CompleteMessage(transport.WC{Bytes: i.off}, i.Flags&frame.Solicited != 0)
	}
	return nil
}

func (frameSend) beginAhead(r *laneReceiver, i *incoming) error {
	if err := r.findRecv(i); err != nil {
		return err
	}
	if e := r.q.RQ.At(i.recv); i.B > uint64(e.Total) || i.Length > e.Total-int(i.B) {
		return violation.ErrTooLong(e.Total)
	}
	i.off = int(i.B)
	r.messageAt(i.A).begun += i.Length
	return nil
}

func (frameSend) arrived(r *laneReceiver, i *incoming) (sequence.Kind, stop, error) {
	m := r.messageAt(i.A)
	m.got += i.Length
	if i.Flags&frame.Last == 0 {
		return sequence.Data, stopNone, nil
	}
	m.op, m.flags, m.bytes = frame.Send, i.Flags, int(i.B)+i.Length
	return sequence.Message, stopNone, nil
}

// placeUntagged places a part of a Send into its posted Recv.
func (c *conn) placeUntagged(b []byte) error {
	err := c.q.RQ.At(c.in.recv).Place(c.in.off, b)
	c.in.advance(len(b))
	return err
}

// messageProgress records how much of a message for a posted Recv has been received, until everything before
// it has been (H2).
type messageProgress struct {
	begun int      // bytes of frames whose headers were received
	got   int      // bytes of frames that were received completely
	bytes int      // of the whole message, once its last frame was received
	op    frame.Op // of the last frame
	flags uint8
	imm   uint64 // of an Immediate
}

func (r *laneReceiver) messageAt(number uint64) *messageProgress {
	return &r.messages[number&uint64(len(r.messages)-1)]
}

// findRecv finds the posted Recv that a message consumes.
func (r *laneReceiver) findRecv(i *incoming) error {
	ahead := i.A - r.q.Message.Number
	if ahead >= uint64(r.q.RQ.Tail-r.q.RQ.Head) {
		return violation.ErrNoRecv
	}
	i.recv = r.q.RQ.Head + uint32(ahead)
	return nil
}
