package shm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/crossing"
)

const (
	provenTimeout = 30 * time.Second       // for the rest of start-up, of a proven peer
	crossingPause = 100 * time.Millisecond // is the peer's connection waited for before ours is tried again
	maxStrangers  = 64                     // connections that have not proved anything, at once
)

// endpoint is a device's connection management. It runs on goroutines with ordinary connections; what it makes is handed to
// the completion queue's driver.
type endpoint struct {
	dev      *Device
	id       transport.Identity
	acceptor transport.Acceptor
	listener *net.UnixListener
	addr     string

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool // no Connect begins any more
	peers     map[uint32]*attempt
	strangers []*stream // in the order in which they came
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
	switch {
	case d.closed.Load():
		return nil, transport.ErrDeviceGone
	case d.end != nil:
		return nil, fmt.Errorf("%w: the device has an endpoint", transport.ErrInvalid)
	}
	addr, err := newAddress()
	if err != nil {
		return nil, err
	}
	_, name, _ := split(addr)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@" + name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if !d.opts.NoCMA {
		sys.LetBeRead()
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &endpoint{dev: d, id: id, acceptor: acceptor, listener: l, addr: addr, ctx: ctx, cancel: cancel, peers: map[uint32]*attempt{}}
	d.end = e
	e.wg.Go(e.serve)
	return e, nil
}

// Addr is where peers connect to.
func (e *endpoint) Addr() string { return e.addr }

// Close ends connection management.
func (e *endpoint) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	err := e.listener.Close()
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
	if rank == e.id.Rank || rank >= e.id.Size {
		return fmt.Errorf("%w: rank %d of %d connects to rank %d", transport.ErrInvalid, e.id.Rank, e.id.Size, rank)
	}
	name, err := e.socket(rank, addr)
	if err != nil {
		return err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, transport.ErrDeviceGone)
	}
	e.wg.Add(1)
	e.mu.Unlock()
	defer e.wg.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	for {
		e.mu.Lock()
		a := e.peer(rank)
		state, changed := a.crossing.State(), (<-chan struct{})(a.changed)
		mine := a.crossing.Dial()
		e.mu.Unlock()
		if state == crossing.Connected {
			return nil
		}
		again := (<-chan time.Time)(nil)
		if mine {
			q, err := e.dial(ctx, a, rank, name)
			decides := false
			changed = e.step(a, q, func(c *crossing.Crossing, alive bool) { decides = c.Dialed(alive) })
			switch {
			case err == nil:
				return nil
			case !decides:
				continue
			case ctx.Err() != nil:
				return e.givenUp(ctx, rank, addr)
			case !errors.Is(err, errCrossing) && !errors.Is(err, errBusy):
				return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, err)
			}
			// The peer's own connection is on its way, and ours is out of its way now; or strangers crowd its door. Dialing again at once would
			// only be turned down again.
			again = time.After(crossingPause)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			return e.givenUp(ctx, rank, addr)
		}
	}
}

func (e *endpoint) givenUp(ctx context.Context, rank uint32, addr string) error {
	if e.ctx.Err() != nil {
		return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, transport.ErrDeviceGone)
	}
	return fmt.Errorf("connecting to rank %d at %s: %w", rank, addr, context.Cause(ctx))
}

// stream is a connection in start-up.
type stream struct {
	*net.UnixConn
	pid      int  // of the peer
	rejected bool // by the peer
	ousted   bool // by a newcomer; guarded by the endpoint
}

// known asks the system who the peer is: only processes of the same user may go on.
func (s *stream) known() error {
	pid, uid, err := sys.PeerOf(s.UnixConn)
	if err == nil && uid != os.Geteuid() {
		err = fmt.Errorf("%w: it is a process of user %d, and this one of user %d", transport.ErrAuth, uid, os.Geteuid())
	}
	s.pid = pid
	return err
}

// until has reads and writes end at a deadline, or with the context.
func (s *stream) until(ctx context.Context, d time.Duration) (release func() bool) {
	s.SetDeadline(time.Now().Add(d))
	return context.AfterFunc(ctx, func() { s.SetDeadline(time.Unix(1, 0)) })
}

// message reads the message that is due; a Reject in its place is an error.
func (s *stream) message(want messageType) ([]byte, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(s, prefix[:]); err != nil {
		return nil, err
	}
	return s.body(prefix[:], want)
}

func (s *stream) body(prefix []byte, want messageType) ([]byte, error) {
	t, n, err := parsePrefix(prefix, want)
	if err != nil {
		return nil, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(s, body); err != nil {
		return nil, err
	}
	if t == typeReject {
		s.rejected = true
		return nil, parseReject(body)
	}
	return body, nil
}

// offer reads the peer's Offer, with its descriptors.
func (s *stream) offer(p *parties, secret *[32]byte, r role) (o *offer, private []byte, fds []int, err error) {
	defer func() {
		if err != nil {
			for _, fd := range fds {
				sys.CloseFD(fd)
			}
		}
	}()
	var prefix [prefixSize]byte
	n, fds, err := sys.RecvDescriptors(s.UnixConn, prefix[:], 3)
	if err != nil {
		return nil, nil, nil, err
	}
	if _, err = io.ReadFull(s, prefix[n:]); err != nil {
		return nil, nil, fds, err
	}
	body, err := s.body(prefix[:], typeOffer)
	if err != nil {
		return nil, nil, fds, err
	}
	o, private, err = p.takeOffer(body, secret, r)
	return o, private, fds, err
}

func (s *stream) reject(code rejectCode, text string) {
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

// vanished words the end of a stream in the middle of start-up.
func vanished(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it closed the connection during start-up", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%w: it reset the connection during start-up", transport.ErrPeerLost)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens there any more: %w", transport.ErrPeerLost, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: it does not answer during start-up: %w", transport.ErrPeerLost, os.ErrDeadlineExceeded)
	}
	return err
}

// ended tells whether an error is the end of the stream.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// dial begins a connection and brings it to its end.
func (e *endpoint) dial(ctx context.Context, a *attempt, rank uint32, name string) (*qp, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", name)
	if err != nil {
		return nil, vanished(err)
	}
	s := &stream{UnixConn: conn.(*net.UnixConn)}
	stop := s.until(ctx, provenTimeout)
	q, err := e.initiate(s, a, rank, func() { stop() })
	if err != nil {
		stop()
		conn.Close()
		return nil, vanished(err)
	}
	return q, nil
}

func (e *endpoint) initiate(s *stream, a *attempt, rank uint32, stop func()) (*qp, error) {
	if err := s.known(); err != nil {
		return nil, err
	}
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	p := parties{job: jobHash(e.id.Job), initiator: e.id.Rank, responder: rank}
	p.nonces[0] = nonce
	if _, err := s.Write(p.appendHello(nil)); err != nil {
		return nil, err
	}
	body, err := s.message(typeChallenge)
	if err == nil {
		err = p.takeChallenge(body, &e.id.Secret)
	}
	if err != nil {
		return nil, s.turnDown(err)
	}
	if _, err := s.Write(p.appendProof(nil, &e.id.Secret)); err != nil {
		return nil, err
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	mine, private, err := e.prepare(rank)
	if err != nil {
		s.reject(rejectOther, err.Error())
		return nil, err
	}
	used := false
	defer func() {
		if !used {
			e.dev.drop(mine, false) // the peer uses it only behind Ready
		}
	}()
	o, fds := e.dev.offer(mine)
	if err := sys.SendDescriptors(s.UnixConn, p.appendOffer(nil, &e.id.Secret, roleOffering, o, private), fds...); err != nil {
		return nil, err
	}
	// While the answer is on its way the peer's own connection may be accepted here.
	a.turn.Unlock()
	theirs, private, fds, err := s.offer(&p, &e.id.Secret, roleAccepting)
	a.turn.Lock()
	if err != nil {
		return nil, s.turnDown(err)
	}
	f, err := e.dev.accept(theirs, fds, s.pid)
	if err != nil {
		return nil, s.turnDown(err)
	}
	e.mu.Lock()
	ours := a.crossing.State() == crossing.Dialing
	e.mu.Unlock()
	if !ours { // the peer began another before it accepted ours; that one has been accepted here
		f.close()
		return nil, errCrossing
	}
	if _, err := s.Write(appendPrefix(nil, typeReady, 0)); err != nil {
		f.close()
		return nil, err
	}
	used = true
	stop()
	return e.connected(s, rank, mine, theirs, f, private), nil
}

// prepare makes this end of a connection, of the shape that the acceptor wants.
func (e *endpoint) prepare(rank uint32) (*prepared, []byte, error) {
	conf, private, err := e.acceptor.Prepare(rank)
	if err == nil && len(private) > maxPrivate {
		err = fmt.Errorf("%w: %d bytes of private data; at most %d are possible", transport.ErrInvalid, len(private), maxPrivate)
	}
	if err == nil {
		err = e.dev.checkConfig(conf)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := e.dev.prepareQP(conf)
	return p, private, err
}

// connected turns the connection into a queue pair and hands it over.
func (e *endpoint) connected(s *stream, rank uint32, mine *prepared, theirs *offer, f *far, private []byte) *qp {
	s.SetDeadline(time.Time{})
	q := e.dev.newQP(mine, s.UnixConn, rank, e.addr, fmt.Sprintf("process %d", s.pid), theirs, f)
	e.acceptor.Connected(rank, q, private)
	q.scq.handOver(q)
	if q.rcq != q.scq {
		q.rcq.handOver(q)
	}
	return q
}

// serve accepts connections until the endpoint is closed.
func (e *endpoint) serve() {
	for {
		conn, err := e.listener.AcceptUnix()
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
		s := &stream{UnixConn: conn}
		e.enter(s)
		e.wg.Go(func() {
			rank, err := e.respond(s)
			if err == nil {
				return
			}
			conn.Close()
			if e.ctx.Err() == nil && !(rank >= 0 && errors.Is(err, errCrossing)) {
				from := fmt.Sprintf("process %d", s.pid)
				if rank >= 0 {
					from = fmt.Sprintf("rank %d, process %d", rank, s.pid)
				}
				e.acceptor.Refused(from, err)
			}
		})
	}
}

// enter takes a stranger in. If there are too many, the oldest goes for him: only processes of this user get here at all, and one of them that
// does nothing is no rank.
func (e *endpoint) enter(s *stream) {
	s.SetDeadline(time.Now().Add(e.dev.opts.StrangerTimeout))
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.strangers) == maxStrangers {
		out := e.strangers[0]
		out.ousted = true
		out.SetDeadline(time.Unix(1, 0))
		e.strangers = append(e.strangers[:0], e.strangers[1:]...)
	}
	e.strangers = append(e.strangers, s)
}

// leave notes that somebody is no stranger any more, or has gone.
func (e *endpoint) leave(s *stream) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, x := range e.strangers {
		if x == s {
			e.strangers = append(e.strangers[:i], e.strangers[i+1:]...)
			return
		}
	}
}

// respond is the responder's side of start-up. The rank is the peer's once it has proved it, -1 before.
func (e *endpoint) respond(s *stream) (rank int, err error) {
	stop := context.AfterFunc(e.ctx, func() { s.SetDeadline(time.Unix(1, 0)) })
	p, err := e.prove(s)
	e.leave(s)
	stop()
	if err != nil {
		if e.ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
			// A rank that was too slow comes again when it is told so. The socket has room for so little: this waits for nothing.
			s.SetDeadline(time.Now().Add(provenTimeout))
			s.reject(rejectBusy, "too slow, or too many strangers are here: try again")
		}
		if s.ousted {
			return -1, fmt.Errorf("%w: it has not proved who it is, and others came when %d such connections were open",
				transport.ErrRefused, maxStrangers)
		}
		return -1, vanished(err)
	}
	// A proven peer: it is no stranger any more.
	stop = s.until(e.ctx, provenTimeout)
	defer stop()
	theirs, private, fds, err := s.offer(&p, &e.id.Secret, roleOffering)
	if err != nil {
		return int(p.initiator), vanished(s.turnDown(err))
	}
	return int(p.initiator), vanished(e.accept(s, &p, theirs, private, fds, func() { stop() }))
}

// prove has a peer prove who it is.
func (e *endpoint) prove(s *stream) (p parties, err error) {
	if err = s.known(); err != nil {
		return p, err
	}
	if p, err = e.hello(s); err != nil {
		return p, err
	}
	if p.nonces[1], err = newNonce(); err != nil {
		return p, err
	}
	if _, err := s.Write(p.appendChallenge(nil, &e.id.Secret)); err != nil {
		return p, err
	}
	body, err := s.message(typeProof)
	if err == nil {
		err = p.check(body, &e.id.Secret, roleInitiator, nil)
	}
	if err != nil {
		return p, s.turnDown(err)
	}
	return p, nil
}

// hello reads the first message and checks who calls whom.
func (e *endpoint) hello(s *stream) (parties, error) {
	raw := make([]byte, helloSize)
	n, err := io.ReadFull(s, raw[:len(magic)])
	if n > 0 && string(raw[:n]) != magic[:n] { // at once: what is no Hello may be shorter than one, and then waits for an answer
		return parties{}, fmt.Errorf("%w: it begins with %q", transport.ErrNotWeft, raw[:n])
	}
	if err == nil {
		_, err = io.ReadFull(s, raw[len(magic):])
	}
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
	case p.responder != e.id.Rank || p.initiator == e.id.Rank || p.initiator >= e.id.Size:
		err = fmt.Errorf("%w: it says that it is rank %d and wants rank %d", transport.ErrRefused, p.initiator, p.responder)
		s.reject(rejectRank, fmt.Sprintf("this is rank %d of %d", e.id.Rank, e.id.Size))
	}
	return p, err
}

// accept makes the connection of a proven peer, unless another one stands or comes first. The descriptors are used up.
func (e *endpoint) accept(s *stream, p *parties, theirs *offer, private []byte, fds []int, stop func()) error {
	rank := p.initiator
	e.mu.Lock()
	a := e.peer(rank)
	ok := a.crossing.Request(e.id.Rank, rank)
	e.mu.Unlock()
	if !ok {
		for _, fd := range fds {
			sys.CloseFD(fd)
		}
		s.reject(rejectCrossing, "another connection between the two stays")
		return errCrossing
	}
	a.turn.Lock()
	defer a.turn.Unlock()
	q, err := e.join(s, p, theirs, private, fds, stop)
	e.step(a, q, (*crossing.Crossing).Made)
	return err
}

// join is accept where nothing is in the way.
func (e *endpoint) join(s *stream, p *parties, theirs *offer, private []byte, fds []int, stop func()) (*qp, error) {
	f, err := e.dev.accept(theirs, fds, s.pid)
	if err != nil {
		return nil, s.turnDown(err)
	}
	mine, answer, err := e.prepare(p.initiator)
	if err != nil {
		f.close()
		s.reject(rejectOther, err.Error())
		return nil, err
	}
	o, own := e.dev.offer(mine)
	err = sys.SendDescriptors(s.UnixConn, p.appendOffer(nil, &e.id.Secret, roleAccepting, o, answer), own...)
	if err == nil {
		_, err = s.message(typeReady)
	}
	if err != nil {
		f.close()
		e.dev.drop(mine, !ended(err)) // it may be about to say Ready, and use it
		return nil, err
	}
	stop()
	return e.connected(s, p.initiator, mine, theirs, f, private), nil
}
