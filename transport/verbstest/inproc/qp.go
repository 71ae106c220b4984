package inproc

import (
	"sync"

	"github.com/weft-mpi/weft/transport/internal/plain"
)

type qp struct {
	plain.QP

	end   *endpoint
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
	p.Notify()
}

func (q *qp) TellFailed(cause error) { q.post(func(p *qp) error { return p.peerFailed(cause) }) }
func (q *qp) TellClosed()            { q.post((*qp).peerClosed) }
func (q *qp) Gone()                  { q.end.table.Released(q.rank, q) }

func (q *qp) Ended() {
	q.mu.Lock()
	q.inbox, q.ended = nil, true
	q.mu.Unlock()
}
