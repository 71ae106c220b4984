package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/admission"
	"github.com/weft-mpi/weft/transport/tcp/internal/link"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/certificates"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// provenTimeout is the time for the rest of the handshake of an authenticated peer.
const provenTimeout = 30 * time.Second

// endpoint is a device's connection management. It runs on goroutines with ordinary connections, and hands
// new queue pairs to the completion queue's driver.
type endpoint struct {
	verbs.ReachesAll

	dev       *Device
	local     setup.Local
	acceptor  transport.Acceptor
	listeners []net.Listener // the first has the endpoint's address
	addr      string

	table   *cm.Table[*qp]
	reports cm.Limiter // of refused unauthenticated peers

	mu        sync.Mutex // guards what follows
	admission admission.Control
	pending   map[*admission.Conn]*setup.Handshake
	left      chan struct{} // signals that an unauthenticated connection has left
}

// Listen starts connection management.
func (d *Device) Listen(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	return d.SetEndpoint(func() (transport.Endpoint, error) { return d.newEndpoint(id, acceptor) })
}

func (d *Device) newEndpoint(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	listeners, err := d.listen()
	if err != nil {
		return nil, err
	}
	local := setup.Local{ID: id}
	if d.opts.TLS {
		if local.Certificates, err = certificates.New(id, time.Now); err != nil {
			closeAll(listeners)
			return nil, fmt.Errorf("certificates of the job: %w", err)
		}
	}
	e := &endpoint{
		dev: d, local: local, acceptor: acceptor, listeners: listeners, addr: "tcp:" +
			listeners[0].Addr().String(),
		table: cm.NewTable[*qp](), reports: cm.Limiter{Burst: d.opts.reportBurst},
		admission: admission.Control{Places: admission.MaxConns, Grace: admission.Grace},
		pending:   map[*admission.Conn]*setup.Handshake{}, left: make(chan struct{}, 1),
	}
	d.end = e
	for _, l := range listeners {
		e.table.Go(func() { e.serve(l) })
	}
	return e, nil
}

// listen listens on one port of the range: on the device's address, and on lane addresses that it does not
// cover.
func (d *Device) listen() ([]net.Listener, error) {
	var last error
	for port := d.opts.LowPort; port <= d.opts.HighPort; port++ {
		list, err := d.listenOn(port)
		if err == nil {
			return list, nil
		}
		last = err
	}
	if d.opts.LowPort != d.opts.HighPort {
		return nil, fmt.Errorf("no port from %d to %d is free: %w", d.opts.LowPort, d.opts.HighPort, last)
	}
	return nil, last
}

func (d *Device) listenOn(port int) (list []net.Listener, err error) {
	var conf net.ListenConfig
	conf.SetMultipathTCP(false)
	hosts := []string{d.opts.Host}
	if a, err := netip.ParseAddr(d.opts.Host); err != nil || !a.IsUnspecified() {
		for _, i := range d.opts.Interfaces {
			if i != a {
				hosts = append(hosts, i.String())
			}
		}
	}
	for _, host := range hosts {
		l, err := conf.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			closeAll(list)
			return nil, err
		}
		list = append(list, l)
		port = l.Addr().(*net.TCPAddr).Port
	}
	return list, nil
}

func closeAll(list []net.Listener) (err error) {
	for _, l := range list {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Addr returns the address that peers connect to.
func (e *endpoint) Addr() string { return e.addr }

// Close ends connection management.
func (e *endpoint) Close() error {
	return e.table.Close(func() error { return closeAll(e.listeners) })
}

// Connect connects to a peer.
func (e *endpoint) Connect(ctx context.Context, peer uint32, addr string) error {
	hostport, ok := strings.CutPrefix(addr, "tcp:")
	if !ok {
		return fmt.Errorf("address %q of rank %d: not an address of the TCP fabric", addr,
			transport.RankOf(peer))
	}
	return e.table.Connect(ctx, e.local.ID, peer, hostport,
		func(ctx context.Context, p *cm.Peer[*qp]) (*qp, error) { return e.dial(ctx, p, peer, hostport) })
}

func (e *endpoint) prepare(peer uint32) (transport.QPConfig, []byte, error) {
	return e.dev.Prepare(e.acceptor, peer)
}

// logConnection tells of a connection, or of one more lane, and how it is encrypted: "TLS 1.3", or "off".
func (q *qp) logConnection(local, remote string, s *link.Session) {
	if !q.dev.opts.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	version := "off"
	if s != nil {
		version = tls.VersionName(s.TLS.ConnectionState().Version)
	}
	q.dev.opts.Log.Debug("connected", "peer", q.Attr.Peer, "from", local, "to", remote, "tls", version)
}

// connected makes the connection a queue pair and hands it over. dialed is the address to which it was made,
// "" if this end did not make it.
func (e *endpoint) connected(h *setup.Handshake, conf transport.QPConfig, private []byte, initiator bool,
	dialed string, agreed message.Agreement) (*qp, error) {
	peer := h.Peer()
	local, remote := h.LocalAddr().String(), h.RemoteAddr().String()
	fd, session, err := h.Detach()
	if err != nil {
		return nil, err
	}
	q := e.dev.newQP(conf, peer, local, remote, initiator, agreed)
	q.logConnection(local, remote, session)
	if agreed.Reconnects {
		newMultiLane(q, fd, session, initiator, h.Token(), routes{dialed, agreed.Listens})
	} else {
		newSingleLink(q, fd, session)
	}
	e.acceptor.Connected(peer, q, private)
	q.scq.handOver(q)
	if q.rcq != q.scq {
		q.rcq.handOver(q)
	}
	return q, nil
}
