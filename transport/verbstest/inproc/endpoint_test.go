package inproc

import (
	"context"
	"fmt"
	"math"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

type endpoint struct {
	verbs.ReachesAll
	verbs.NoTransferrer

	dev      *device
	id       transport.Identity
	acceptor transport.Acceptor
	addr     string
	table    *cm.Table[*qp]
}

func (d *device) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	return d.SetEndpoint(func() (transport.Endpoint, error) {
		d.net.mu.Lock()
		defer d.net.mu.Unlock()
		d.net.made++
		e := &endpoint{dev: d, id: id, acceptor: a, addr: fmt.Sprintf("inproc:%d", d.net.made),
			table: cm.NewTable[*qp]()}
		d.net.endpoints[e.addr] = e
		return e, nil
	})
}

func (e *endpoint) Addr() string { return e.addr }

func (e *endpoint) Close() error {
	n := e.dev.net
	n.mu.Lock()
	delete(n.endpoints, e.addr)
	n.mu.Unlock()
	return e.table.Close(func() error { return nil })
}

func (e *endpoint) Connect(ctx context.Context, rank uint32, addr string) error {
	return e.table.Connect(ctx, e.id, rank, addr, func(ctx context.Context, p *cm.Peer[*qp]) (*qp, error) {
		return e.dial(ctx, p, rank, addr)
	})
}

// dial begins a connection and brings it to its end: both sides of it, in this goroutine.
func (e *endpoint) dial(ctx context.Context, p *cm.Peer[*qp], rank uint32, addr string) (*qp, error) {
	n := e.dev.net
	n.mu.Lock()
	to := n.endpoints[addr]
	n.mu.Unlock()
	if to == nil {
		return nil, fmt.Errorf("%w: nobody listens", transport.ErrPeerLost)
	}
	_, end, err := to.table.Begin(ctx) // its Close waits for our callbacks there
	if err != nil {
		return nil, fmt.Errorf("%w: nobody listens any more", transport.ErrPeerLost)
	}
	defer end()
	if err := e.authenticate(to, rank); err != nil {
		to.acceptor.Refused(fmt.Sprintf("rank %d at %s", e.id.Rank, e.addr), err)
		return nil, err
	}
	tp, ok := to.table.Request(rank, e.id.Facing(rank))
	if !ok {
		return nil, cm.ErrCollision
	}
	if !e.table.Commit(p) {
		to.table.Accepted(tp, nil)
		return nil, cm.ErrCollision
	}
	p.Callbacks.Lock()
	defer p.Callbacks.Unlock()
	tp.Callbacks.Lock()
	defer tp.Callbacks.Unlock()
	mine, theirs, err := e.join(to, rank)
	to.table.Accepted(tp, theirs)
	return mine, err
}

// authenticate compares what two processes would have proved to each other.
func (e *endpoint) authenticate(to *endpoint, rank uint32) error {
	switch {
	case e.id.Secret != to.id.Secret || e.id.Job != to.id.Job:
		return transport.ErrAuth
	case !to.id.Meets(e.id.Facing(rank), rank):
		return fmt.Errorf("%w: rank %d of %d is there", transport.ErrRefused, to.id.Rank, to.id.Size)
	}
	return nil
}

// join makes the two ends of a connection and hands them over.
func (e *endpoint) join(to *endpoint, rank uint32) (mine, theirs *qp, err error) {
	sides := [2]*endpoint{e, to}
	ends := [2]*qp{{end: e, rank: rank}, {end: to, rank: e.id.Facing(rank)}}
	var private [2][]byte
	var conf [2]transport.QPConfig
	for i, s := range sides {
		if conf[i], private[i], err = s.dev.Prepare(s.acceptor, ends[i].rank); err != nil {
			err = fmt.Errorf("%w: rank %d says: %w", transport.ErrRefused, s.id.Rank, err)
			to.acceptor.Refused(fmt.Sprintf("rank %d at %s", e.id.Rank, e.addr), err)
			return nil, nil, err
		}
	}
	for i, s := range sides {
		ends[i].peer = ends[1-i]
		a := s.dev.Query()
		ends[i].Init(transport.QPAttr{QPConfig: conf[i], Num: s.dev.NewQPN(), Peer: sides[1-i].id.Rank,
			Port: transport.PortOf(rank), Local: s.addr, Remote: sides[1-i].addr, PeerRecv: conf[1-i].RecvWR,
			PeerReads: min(conf[0].Reads, conf[1].Reads), Lanes: 1},
			verbs.Limits{SGE: a.MaxSGE, Segments: a.MaxSegments, Inline: a.MaxInline, Message: a.MaxMessage,
				Offset: math.MaxUint64, Reads: min(conf[0].Reads, conf[1].Reads)}, ends[i])
	}
	for i, s := range sides {
		s.acceptor.Connected(ends[i].rank, ends[i], append([]byte(nil), private[1-i]...))
		for _, c := range ends[i].queues() {
			c.handOver(ends[i])
		}
	}
	return ends[0], ends[1], nil
}
