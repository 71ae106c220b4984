package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/crossing"
)

// provenTimeout is how long a proven peer may take for the rest of start-up.
const provenTimeout = 30 * time.Second

// endpoint is a device's connection management. It runs on goroutines with ordinary connections; what it makes is handed to
// the completion queue's driver.
type endpoint struct {
	dev       *Device
	id        transport.Identity
	acceptor  transport.Acceptor
	certs     *certificates  // nil where connections are not encrypted
	listeners []net.Listener // the first has the endpoint's address
	addr      string

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool // no Connect begins any more
	peers     map[uint32]*attempt
	admission admission
	guests    map[*stranger]*stream
	left      chan struct{} // a stranger has given his place back
}

// attempt is what the endpoint knows of one peer.
type attempt struct {
	crossing crossing.Crossing
	qp       *qp           // in crossing.Connected: the connection, until it is released
	changed  chan struct{} // closed when the state changes
	turn     sync.Mutex    // callbacks of one peer never run two at a time
}

// Listen starts connection management.
func (d *Device) Listen(id transport.Identity, acceptor transport.Acceptor) (transport.Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() {
		return nil, transport.ErrDeviceGone
	}
	if d.end != nil {
		return nil, fmt.Errorf("%w: the device has an endpoint", transport.ErrInvalid)
	}
	listeners, err := d.listen()
	if err != nil {
		return nil, err
	}
	var certs *certificates
	if d.opts.TLS {
		if certs, err = newCertificates(id, time.Now); err != nil {
			closeAll(listeners)
			return nil, fmt.Errorf("certificates of the job: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &endpoint{
		dev: d, id: id, acceptor: acceptor, certs: certs, listeners: listeners, addr: "tcp:" + listeners[0].Addr().String(), ctx: ctx, cancel: cancel,
		peers: map[uint32]*attempt{}, admission: admission{places: maxStrangers, grace: strangerGrace},
		guests: map[*stranger]*stream{}, left: make(chan struct{}, 1),
	}
	d.end = e
	for _, l := range listeners {
		e.wg.Go(func() { e.serve(l) })
	}
	return e, nil
}

// listen listens on a port of the range: on the device's address, and on those of its lanes that this one does not cover.
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

// Addr is where peers connect to.
func (e *endpoint) Addr() string { return e.addr }

// Close ends connection management.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	err := closeAll(e.listeners)
	e.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (e *endpoint) peer(rank uint32) *attempt {
	a := e.peers[rank]
	if a == nil {
		a = &attempt{changed: make(chan struct{})}
		e.peers[rank] = a
	}
	return a
}

// step notes how an attempt ended, with a queue pair or nil, and tells those who wait for it. A queue pair that its acceptor has
// released already counts as none. It returns what is closed at the next change.
func (e *endpoint) step(a *attempt, q *qp, change func(c *crossing.Crossing, alive bool)) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	alive := q != nil && !q.released.Load()
	if change(&a.crossing, alive); alive {
		a.qp = q
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return a.changed
}

// released notes that a connection has ended: the two ranks can be connected again.
func (e *endpoint) released(q *qp) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.peers[q.peer]; a != nil && a.qp == q {
		a.qp = nil
		a.crossing.Released()
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// Connect connects to a rank.
func (e *endpoint) Connect(ctx context.Context, rank uint32, addr string) error {
	hostport, ok := strings.CutPrefix(addr, "tcp:")
	if !ok {
		return fmt.Errorf("address %q of rank %d: not an address of the TCP fabric", addr, rank)
	}
	if rank == e.id.Rank || rank >= e.id.Size {
		return fmt.Errorf("%w: rank %d of %d connects to rank %d", transport.ErrInvalid, e.id.Rank, e.id.Size, rank)
	}
	ctx, done, err := e.begin(ctx)
	if err != nil {
		return fmt.Errorf("connecting to rank %d at %s: %w", rank, hostport, err)
	}
	defer done()
	for {
		e.mu.Lock()
		a := e.peer(rank)
		state, changed := a.crossing.State(), a.changed
		mine := a.crossing.Dial()
		e.mu.Unlock()
		if state == crossing.Connected {
			return nil
		}
		if mine {
			q, err := e.dial(ctx, a, rank, hostport)
			decides := false
			changed := e.step(a, q, func(c *crossing.Crossing, alive bool) { decides = c.Dialed(alive) })
			if err == nil {
				return nil
			}
			if decides && ctx.Err() != nil {
				return e.ended(ctx, rank, hostport)
			}
			if decides && !errors.Is(err, errCrossing) && !errors.Is(err, errBusy) {
				return fmt.Errorf("connecting to rank %d at %s: %w", rank, hostport, err)
			}
			if decides {
				// The peer's own connection is on its way, and ours is out of its way now; or strangers crowd its door. Dialing
				// again at once would only be turned down again.
				select {
				case <-changed:
				case <-time.After(crossingPause):
				case <-ctx.Done():
				}
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e.ended(ctx, rank, hostport)
		}
	}
}

// begin begins a call that makes a connection: Close ends its context, and waits for it.
func (e *endpoint) begin(ctx context.Context) (context.Context, func(), error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, transport.ErrDeviceGone
	}
	e.wg.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel(); e.wg.Done() }, nil
}

// crossingPause is how long the peer's connection is waited for before ours is tried again.
const crossingPause = 100 * time.Millisecond

func (e *endpoint) ended(ctx context.Context, rank uint32, addr string) error {
	if e.ctx.Err() != nil {
		return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, transport.ErrDeviceGone)
	}
	return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, context.Cause(ctx))
}

// stream is a connection in start-up.
type stream struct {
	net.Conn          // what messages go through
	socket   net.Conn // the connection below
	secure   *secure  // nil where it is not encrypted
	proven   int64    // the rank in the peer's certificate, or -1
	foreign  []byte   // came before start-up, and belongs to none
	read     int      // bytes read
	rejected bool     // by the peer
	answered bool     // the peer has been told that it is turned down
	joins    bool     // it may be a lane of a queue pair that stands
	lent     bool     // it was an application's: it cannot be made anew
	dialed   string   // where it was made to; none if it was not made here
}

func newStream(conn net.Conn) *stream { return &stream{Conn: conn, socket: conn, proven: -1} }

// until has reads and writes end at a deadline, or with the context.
func (s *stream) until(ctx context.Context, d time.Duration) (release func() bool) {
	s.socket.SetDeadline(time.Now().Add(d)) // not through TLS, which may have left streaming mode by the time that the context ends
	return context.AfterFunc(ctx, func() { s.socket.SetDeadline(time.Unix(1, 0)) })
}

// message reads the message that is due (0: any), or a Reject: exactly it, not a byte more, since what follows may be of the other mode (C2).
// Nothing is read of the body of another one.
func (s *stream) message(want messageType) (messageType, []byte, error) {
	var prefix [prefixSize]byte
	if err := s.full(prefix[:]); err != nil {
		return 0, nil, err
	}
	t, n, err := parsePrefix(prefix[:])
	if err == nil && want != 0 && t != want && t != typeReject {
		err = fmt.Errorf("%w: %v where %v is due", transport.ErrProtocol, t, want)
	}
	if err != nil {
		return t, nil, err
	}
	body := make([]byte, n)
	return t, body, s.full(body)
}

func (s *stream) full(b []byte) error {
	n, err := io.ReadFull(s.Conn, b)
	s.read += n
	if err != nil && s.secure != nil {
		return unprotected(err)
	}
	return err
}

// detach takes the descriptor out of the connection for raw use.
func (s *stream) detach() (int, error) {
	f, err := s.socket.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return -1, err
	}
	defer f.Close()
	fd, err := sys.Dup(int(f.Fd()))
	if err != nil {
		return -1, err
	}
	if err := errors.Join(sys.PrepareSocket(fd), s.socket.Close()); err != nil {
		sys.CloseFD(fd)
		return -1, err
	}
	return fd, nil
}

// dial begins a connection and brings it to RDMA mode.
func (e *endpoint) dial(ctx context.Context, a *attempt, rank uint32, addr string) (*qp, error) {
	d := net.Dialer{LocalAddr: e.dev.opts.local(0)}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	s := newStream(conn)
	s.dialed = addr
	defer s.until(ctx, provenTimeout)()
	q, err := e.initiate(s, a, rank)
	return q, vanished(err)
}

// vanished words the end of a stream in the middle of start-up.
func vanished(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it closed the connection during start-up", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: it reset the connection during start-up", transport.ErrPeerLost)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it does not answer during start-up: %w", transport.ErrPeerLost, os.ErrDeadlineExceeded)
	}
	return err
}

// introduce is the initiator's side of start-up up to the responder's proof.
func (e *endpoint) introduce(s *stream, rank uint32, lane uint16) (*parties, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	p := &parties{job: jobHash(e.id.Job), initiator: e.id.Rank, responder: rank, lane: lane}
	p.nonces[0] = nonce
	if e.certs != nil {
		if err := s.encrypt(e.certs, rank); err != nil {
			return nil, err
		}
	}
	if _, err := s.Write(p.appendHello(nil)); err != nil {
		if s.secure != nil { // it may have ended because it did not like our certificate
			if _, why := expect(s, typeChallenge); errors.Is(why, transport.ErrRefused) {
				return nil, why
			}
		}
		return nil, err
	}
	body, err := expect(s, typeChallenge)
	if err != nil {
		return nil, s.turnDown(err)
	}
	if err := p.takeChallenge(body, &e.id.Secret); err != nil {
		return nil, s.turnDown(err)
	}
	return p, nil
}

func (e *endpoint) initiate(s *stream, a *attempt, rank uint32) (*qp, error) {
	p, err := e.introduce(s, rank, 0)
	if err != nil {
		return nil, err
	}
	if len(s.foreign) > 0 {
		return nil, s.turnDown(fmt.Errorf("%w: %d bytes that came before start-up are the application's: %.40q", transport.ErrNotWeft,
			len(s.foreign), s.foreign))
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	conf, private, err := e.prepare(rank)
	if err != nil {
		s.reject(rejectOther, err.Error())
		return nil, err
	}
	mine := e.parameters(conf, s)
	if _, err := s.Write(p.appendRequest(p.appendProof(nil, &e.id.Secret), &e.id.Secret, mine, private)); err != nil {
		return nil, err
	}
	// While the answer is on its way the peer's own connection may be accepted here.
	a.turn.Unlock()
	body, err := expect(s, typeAccept)
	a.turn.Lock()
	if err != nil {
		return nil, err
	}
	theirs, private, err := p.takeAccept(body, &e.id.Secret)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	ours := a.crossing.State() == crossing.Dialing
	e.mu.Unlock()
	if !ours {
		return nil, errCrossing // the peer began another before it accepted ours; that one has been accepted here
	}
	return e.connected(s, p, conf, private, true, mine.negotiate(theirs))
}

// expect reads the message that is due, or the Reject in its place.
func expect(s *stream, want messageType) ([]byte, error) {
	t, body, err := s.message(want)
	s.rejected = t == typeReject
	if err == nil && s.rejected {
		err = parseReject(body)
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}

func (e *endpoint) prepare(rank uint32) (transport.QPConfig, []byte, error) {
	conf, private, err := e.acceptor.Prepare(rank)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: %d bytes of private data; at most %d are possible", transport.ErrInvalid, len(private), maxPrivate)
	}
	if err == nil {
		err = e.dev.checkConfig(conf)
	}
	return conf, private, err
}

// connected turns the connection into a queue pair and hands it over.
func (e *endpoint) connected(s *stream, p *parties, conf transport.QPConfig, private []byte, initiator bool, agreed agreement) (*qp, error) {
	rank := p.initiator
	if initiator {
		rank = p.responder
	}
	local, remote := s.LocalAddr().String(), s.RemoteAddr().String()
	fd, err := s.detach()
	if err != nil {
		return nil, err
	}
	if sameMachine(s.LocalAddr(), s.RemoteAddr()) {
		sys.SkipCongestionControl(fd)
	}
	q := e.dev.newQP(fd, conf, rank, local, remote, initiator, agreed)
	if s.secure != nil {
		s.secure.raw(fd)
		q.secure = s.secure
	}
	if agreed.keeps {
		q.secure = nil // it is the lane's
		newBundle(q, initiator, p.token(&e.id.Secret), routes{s.dialed, agreed.listens}, s.secure)
	}
	e.acceptor.Connected(rank, q, private)
	q.scq.handOver(q)
	if q.rcq != q.scq {
		q.rcq.handOver(q)
	}
	return q, nil
}

// sameMachine tells whether a connection stays on this machine: both its ends have the same address, or none of a network.
func sameMachine(a, b net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	x, ok1 := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	return ok1 && ok2 && (x.IP.Equal(y.IP) || x.IP.IsLoopback() && y.IP.IsLoopback())
}

// serve accepts connections until the endpoint is closed.
func (e *endpoint) serve(l net.Listener) {
	for e.room() {
		conn, err := l.Accept()
		if err != nil {
			if e.ctx.Err() != nil {
				return
			}
			e.dev.opts.Log.Error("accepting connections", "address", e.addr, "error", err)
			select { // out of descriptors, most likely: it passes
			case <-time.After(100 * time.Millisecond):
				continue
			case <-e.ctx.Done():
				return
			}
		}
		s := newStream(conn)
		s.joins = e.dev.opts.keeps()
		who := e.enter(s)
		e.wg.Go(func() {
			defer conn.Close()
			rank, err := e.respond(s, who)
			crossed := rank >= 0 && (errors.Is(err, errCrossing) || errors.Is(err, errGone))
			if err != nil && !crossed && e.ctx.Err() == nil {
				from := conn.RemoteAddr().String()
				if rank >= 0 {
					from = fmt.Sprintf("rank %d at %s", rank, from)
				}
				e.acceptor.Refused(from, err)
			}
		})
	}
}

// room waits until a newcomer could be taken in. It tells whether the endpoint is open still.
func (e *endpoint) room() bool {
	for {
		e.mu.Lock()
		wait := e.admission.room(time.Now())
		e.mu.Unlock()
		if wait == 0 {
			return e.ctx.Err() == nil
		}
		select {
		case <-e.left:
		case <-time.After(wait):
		case <-e.ctx.Done():
			return false
		}
	}
}

// enter takes a stranger in, and cuts who goes for him.
func (e *endpoint) enter(s *stream) *stranger {
	host, _, _ := net.SplitHostPort(s.RemoteAddr().String())
	who := &stranger{address: host}
	now := time.Now()
	s.socket.SetDeadline(now.Add(e.dev.opts.StrangerTimeout))
	e.mu.Lock()
	defer e.mu.Unlock()
	if out := e.admission.enter(who, now); out != nil {
		e.guests[out].socket.SetDeadline(time.Unix(1, 0))
		delete(e.guests, out)
	}
	e.guests[who] = s
	return who
}

// leave notes that somebody is no stranger any more, or has gone. Behind it nobody cuts him for a newcomer.
func (e *endpoint) leave(who *stranger) {
	e.mu.Lock()
	e.admission.leave(who)
	delete(e.guests, who)
	e.mu.Unlock()
	select {
	case e.left <- struct{}{}:
	default:
	}
}

// greeted notes that a stranger has sent a Hello of this job.
func (e *endpoint) greeted(who *stranger) {
	e.mu.Lock()
	who.greeted = true
	e.mu.Unlock()
}

// respond is the responder's side of start-up. The rank is the peer's once it has proved it, -1 before.
func (e *endpoint) respond(s *stream, who *stranger) (rank int, err error) {
	stop := context.AfterFunc(e.ctx, func() { s.socket.SetDeadline(time.Unix(1, 0)) })
	p, theirs, private, err := e.prove(s, e.anyPeer, func() { e.greeted(who) })
	e.leave(who)
	stop()
	if err != nil {
		if e.ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) && (who.ousted || who.greeted) {
			// A rank that was too slow comes again when it is told so. The socket has room for so little: this waits for nothing.
			s.socket.SetDeadline(time.Now().Add(provenTimeout))
			s.reject(rejectBusy, "too slow, or too many strangers are here: try again")
		}
		if who.ousted {
			return -1, fmt.Errorf("%w: it has not proved who it is, and others came when %d such connections were open",
				transport.ErrRefused, maxStrangers)
		}
		return -1, vanished(err)
	}
	// A proven peer: it is no stranger any more.
	defer s.until(e.ctx, provenTimeout)()
	if p.lane != 0 {
		return int(p.initiator), vanished(e.acceptLane(s, &p, private))
	}
	return int(p.initiator), vanished(e.accept(s, &p, theirs, private))
}

// strangerBytes is the most that is read of who has not proved who he is: a Hello, which is checked before more is read, and a Proof, or a
// Reject in its place.
const strangerBytes = helloSize + prefixSize + 1 + maxText

// prove has a peer prove who it is: one that may call. greeted is called when it has sent a Hello of this job.
func (e *endpoint) prove(s *stream, may func(initiator uint32) bool, greeted func()) (p parties, theirs parameters, private []byte, err error) {
	if e.certs != nil {
		if err := s.expectEncrypted(e.certs); err != nil {
			return p, theirs, nil, err
		}
	}
	if p, err = e.hello(s, may); err != nil {
		return p, theirs, nil, err
	}
	greeted()
	if p.nonces[1], err = newNonce(); err != nil {
		return p, theirs, nil, err
	}
	if _, err := s.Write(p.appendChallenge(nil, &e.id.Secret)); err != nil {
		return p, theirs, nil, err
	}
	body, err := expect(s, typeProof)
	if err == nil {
		err = p.takeProof(body, &e.id.Secret)
	}
	if err == nil { // from here on it is no stranger whose bytes are read
		body, err = expect(s, typeRequest)
	}
	if err == nil {
		theirs, private, err = p.takeRequest(body, &e.id.Secret)
	}
	if err != nil {
		return p, theirs, nil, s.turnDown(err)
	}
	return p, theirs, private, nil
}

// anyPeer tells whether a rank is another one of the job.
func (e *endpoint) anyPeer(rank uint32) bool { return rank != e.id.Rank && rank < e.id.Size }

// first reads a first message, unless the magic before it is wrong.
func (s *stream) first() ([]byte, error) {
	raw := make([]byte, helloSize)
	err := s.full(raw[:len(magic)])
	if s.read > 0 && string(raw[:s.read]) != magic[:s.read] {
		// At once: what is no Hello may be shorter than one, and then waits for an answer.
		err := fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, raw[:s.read])
		if raw[0] == recordHandshake && s.secure == nil {
			s.reject(rejectOther, "connections are not encrypted here, and yours is: "+bothOrNeither)
			return nil, fmt.Errorf("%w, which is TLS, and here connections are not encrypted: %s", err, bothOrNeither)
		}
		return nil, err
	}
	if err == nil {
		err = s.full(raw[len(magic):])
	}
	return raw, err
}

// hello reads the first message and checks who calls whom.
func (e *endpoint) hello(s *stream, may func(initiator uint32) bool) (parties, error) {
	raw, err := s.first()
	if err != nil {
		return parties{}, err
	}
	p, err := parseHello(raw)
	switch {
	case errors.Is(err, transport.ErrVersion):
		s.reject(rejectVersion, fmt.Sprintf("this is version %d", startupVersion))
	case err != nil:
	case p.job != jobHash(e.id.Job):
		err = fmt.Errorf("%w: it is of another job", transport.ErrRefused)
		s.reject(rejectOther, "this is another job")
	case s.proven >= 0 && int64(p.initiator) != s.proven:
		err = fmt.Errorf("%w: it says that it is rank %d, and its certificate that it is rank %d", transport.ErrAuth, p.initiator, s.proven)
		s.reject(rejectAuth, fmt.Sprintf("your certificate is of rank %d", s.proven))
	case p.responder != e.id.Rank || !may(p.initiator) || p.lane != 0 && !s.joins:
		err = fmt.Errorf("%w: it says that it is rank %d and wants rank %d, lane %d", transport.ErrRefused, p.initiator, p.responder, p.lane)
		s.reject(rejectRank, fmt.Sprintf("this is rank %d of %d", e.id.Rank, e.id.Size))
	}
	return p, err
}

func (s *stream) reject(code rejectCode, text string) {
	s.answered = true
	s.Write(appendReject(nil, code, text)) // it is told if it listens
}

// turnDown tells the peer what is wrong with its message, unless it has turned us down itself or is gone. It returns the error.
func (s *stream) turnDown(err error) error {
	switch {
	case s.rejected:
	case errors.Is(err, transport.ErrAuth):
		s.reject(rejectAuth, err.Error())
	case errors.Is(err, transport.ErrVersion):
		s.reject(rejectVersion, fmt.Sprintf("this is version %d", startupVersion))
	case errors.Is(err, transport.ErrProtocol), errors.Is(err, transport.ErrNotWeft):
		s.reject(rejectOther, err.Error())
	}
	return err
}

// accept makes the connection of a proven peer, unless another one stands or comes first.
func (e *endpoint) accept(s *stream, p *parties, theirs parameters, private []byte) error {
	rank := p.initiator
	e.mu.Lock()
	a := e.peer(rank)
	ok := a.crossing.Request(e.id.Rank, rank)
	e.mu.Unlock()
	if !ok {
		s.reject(rejectCrossing, "another connection between the two stays")
		return errCrossing
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	q, err := func() (*qp, error) {
		conf, answer, err := e.prepare(rank)
		if err != nil {
			s.reject(rejectOther, err.Error())
			return nil, err
		}
		mine := e.parameters(conf, s)
		if _, err := s.Write(p.appendAccept(nil, &e.id.Secret, mine, answer)); err != nil {
			return nil, err
		}
		return e.connected(s, p, conf, private, false, mine.negotiate(theirs))
	}()
	e.step(a, q, (*crossing.Crossing).Made)
	return err
}
