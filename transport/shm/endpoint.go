package shm

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

const (
	provenTimeout = 30 * time.Second // for the rest of the handshake of an authenticated peer
	maxCallers    = 64               // unauthenticated connections at once
)

// endpoint is a device's connection management. It runs on goroutines with ordinary connections, and hands
// new queue pairs to the completion queue's driver.
type endpoint struct {
	verbs.NoTransferrer

	dev      *Device
	id       transport.Identity
	acceptor transport.Acceptor
	listener *net.UnixListener
	addr     string
	socket   string // abstract name of the listener's socket
	table    *cm.Table[*qp]
	callers  chan struct{} // a semaphore for unauthenticated connections
	reports  cm.Limiter    // of rejected callers
	requests requests
}

// Listen starts connection management.
func (d *Device) Listen(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	return d.SetEndpoint(func() (transport.Endpoint, error) { return d.listen(id, acceptor) })
}

func (d *Device) listen(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	addr, err := newAddress()
	if err != nil {
		return nil, err
	}
	_, name, _ := split(addr)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: "@" + name, Net: network})
	if err != nil {
		return nil, err
	}
	if !d.opts.NoCMA {
		sys.LetBeRead()
	}
	e := &endpoint{dev: d, id: id, acceptor: acceptor, listener: l, addr: addr, socket: name,
		table:   cm.NewTable[*qp](),
		callers: make(chan struct{}, maxCallers)}
	if err := e.openRequests(); err != nil {
		l.Close()
		return nil, err
	}
	if e.requests.here.space != "" {
		e.addr += ":" + e.requests.here.String()
	}
	d.end = e
	e.table.Go(e.serve)
	e.table.Go(e.serveRequests)
	return e, nil
}

// Addr returns the address that peers connect to.
func (e *endpoint) Addr() string { return e.addr }

// Close ends connection management.
func (e *endpoint) Close() error {
	return e.table.Close(func() error {
		e.closeRequests()
		return e.listener.Close()
	})
}

// Connect connects to a peer through its socket.
func (e *endpoint) Connect(ctx context.Context, peer uint32, addr string) error {
	return e.table.Connect(ctx, e.id, peer, addr,
		func(ctx context.Context, p *cm.Peer[*qp]) (*qp, error) {
			name, _, err := e.reachable(transport.RankOf(peer), addr)
			if err != nil {
				return nil, err
			}
			return e.dial(ctx, p, peer, name)
		})
}

// prepare makes this end of a connection, with the shape that the acceptor returns.
func (e *endpoint) prepare(peer uint32) (*prepared, []byte, error) {
	conf, private, err := e.dev.Prepare(e.acceptor, peer)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.dev.prepareQP(conf)
	return p, private, err
}

// connected makes the queue pair of a connection and hands it over.
func (e *endpoint) connected(pid int, peer uint32, mine *prepared, theirs *connectInfo, f *peerMapping,
	private []byte) *qp {
	q := e.dev.newQP(mine, peer, e.addr, fmt.Sprintf("process %d", pid), theirs, f)
	e.requests.unconnected.take() // its message precedes those of the connection
	e.acceptor.Connected(peer, q, private)
	q.scq.handOver(q)
	if q.rcq != q.scq {
		q.rcq.handOver(q)
	}
	return q
}
