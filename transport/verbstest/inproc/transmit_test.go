package inproc

import (
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// What one end asks of the other is a function that the other's passes call, in order: see post.

// transmit carries out the send queue in order, as far as it can be now, and closes our direction after it.
func (q *qp) transmit() {
	for !q.Ended() && q.next != q.SQ.Tail {
		w := q.SQ.At(q.next)
		if w.Flags&transport.FlagFence != 0 && q.asked > 0 || w.Asks() && q.asked == q.Limits.Reads {
			break
		}
		if err := q.carryOut(w); err != nil {
			w.Failed = transport.StatusLocalProt
			q.Fail(err, transport.StatusFlushed)
			return
		}
		q.next++
	}
	if q.Retire(); !q.Ended() && q.CloseDue() && q.SQ.Len() == 0 {
		q.post((*qp).peerClosed)
		q.CloseSent()
	}
}

// carryOut begins a request. What is no Read is done then: its bytes have been copied.
func (q *qp) carryOut(w *verbs.Request) error {
	if !w.Alive() {
		return fmt.Errorf("%w: a region of a posted request was deregistered before it was sent",
			transport.ErrInvalid)
	}
	remote, solicited := append([]transport.Segment(nil), w.Remote...), w.Solicited()
	if w.Asks() {
		w.Asked = true
		q.asked++
		r := asked{op: w.Op, number: w.Number, from: remote, operand: w.Imm}
		q.post(func(p *qp) error { return p.respond(&r) })
		return nil
	}
	w.Done = true
	data, wc := append([]byte(nil), w.Inline...), transport.WC{}
	for _, p := range w.Local {
		data = append(data, p.Region.Mem[p.Off:p.Off+p.Len]...)
	}
	switch w.Op {
	case transport.OpWrite:
		q.post(func(p *qp) error { return p.place(remote, data) })
	case transport.OpWriteImm:
		wc.Imm, wc.HasImm = uint32(w.Imm), true
		q.post(func(p *qp) error { return p.place(remote, data) })
		q.post(func(p *qp) error { return p.deliver(nil, wc, solicited) })
	case transport.OpSend:
		wc.Bytes = len(data)
		q.post(func(p *qp) error { return p.deliver(data, wc, solicited) })
	}
	return nil
}
