package engine

import (
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
)

// A blocking receive that names its source, while nothing else is posted or kept, most often gets the very next message of that source. Where
// that is placed without this side's taking part, the receive looks for it in the ring and copies it out, with no request and no table in
// between. It holds the lock meanwhile, and leaves it as soon as anybody else wants it.

const (
	directLooks = 400 // in the ring, before the receive is posted as any other
	directRuns  = 64  // direct receives between two passes over everything else
)

// direct tells whether the next message of a peer may be taken straight out of its ring.
func (e *Engine) direct(p *peer) bool {
	if p == nil || !p.watched || p.state != peerOpen || e.spinFor == 0 || p.in.coming() {
		return false
	}
	if posted, unexpected := e.table.Waiting(); posted+unexpected > 0 {
		return false
	}
	e.directs++
	return e.directs%directRuns != 0
}

// receiveDirect waits for a while for the next message of a peer, and takes it if it is the one. Without it nothing has happened that the
// receive would not find in the table or in the ring.
func (e *Engine) receiveDirect(p *peer, context uint32, buf []byte, tag, elem int) (st Status, err error, ok bool) {
	e.flush()
	if len(e.retry) > 0 {
		e.retryPeers()
	}
	for range directLooks {
		if p.ch.Ready() {
			kind, body, whole, err := p.ch.Next()
			if !whole || err != nil || kind != channel.Eager {
				break
			}
			env, payload, err := eager.Parse(body)
			if err != nil || env.Context != context || int(env.Tag) != tag && (tag != AnyTag || env.Context == controlContext) {
				break
			}
			n := copy(buf, payload)
			st = Status{Source: p.rank, Tag: int(env.Tag), Bytes: n, Elem: elem}
			if n < len(payload) {
				err = truncated(len(payload), &st)
			}
			p.ch.Release()
			e.owe(p)
			return st, err, true
		}
		if e.mu.wanted() {
			return Status{}, nil, false
		}
	}
	e.drain(p)
	return Status{}, nil, false
}

// truncated is the error of a receive with too little room for a message of so many bytes.
func truncated(bytes int, st *Status) error {
	return fmt.Errorf("%w: %d bytes from rank %d with tag %d, room for %d", ErrTruncate, bytes, st.Source, st.Tag, st.Bytes)
}
