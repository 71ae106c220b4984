package inproc

import (
	"sync"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

type qp struct {
	queuepair.QP
	verbs.NoInlineWriter
	verbs.NoDirectCopier
	verbs.NoQPPoller
	verbs.NoLanes
	verbs.NoReadCounter

	end   *endpoint
	next  uint32 // of SQ: what goes out next
	rank  uint32 // the peer's
	peer  *qp
	asked int // Reads that the peer has not answered

	mu    sync.Mutex        // guards what follows
	inbox []func(*qp) error // what the peer asks for
	ended bool              // nothing comes in any more
}

// post has the peer do something in its next pass. An error of that ends the connection.
func (q *qp) post(f func(*qp) error) {
	p := q.peer
	p.mu.Lock()
	if !p.ended {
		p.inbox = append(p.inbox, f)
	}
	p.mu.Unlock()
	p.notify()
}

// queues are the completion queues, the same one twice where there is one.
func (q *qp) queues() [2]*cq {
	return [2]*cq{q.Attr.SendCQ.(*cq), q.Attr.RecvCQ.(*cq)}
}

// notify has the drivers make a pass. It may be called from any goroutine.
func (q *qp) notify() {
	for _, c := range q.queues() {
		c.Notify()
	}
}

func (q *qp) PostSend(wr *transport.SendWR) error {
	err := q.Post(wr)
	switch {
	case err != nil:
	case wr.Flags&transport.FlagMore == 0:
		q.transmit()
	default:
		q.notify()
	}
	return err
}

func (q *qp) Flush() { q.transmit() }

func (q *qp) TellFailed(cause error) { q.post(func(p *qp) error { return p.peerFailed(cause) }) }
func (q *qp) StartClose()            { q.transmit() }
func (q *qp) Gone()                  { q.end.table.Released(q.rank, q) }

func (q *qp) Disconnect() {
	q.mu.Lock()
	q.inbox, q.ended = nil, true
	q.mu.Unlock()
	for _, c := range q.queues() {
		c.qps.Remove(q)
	}
	q.next = q.SQ.Tail
}
