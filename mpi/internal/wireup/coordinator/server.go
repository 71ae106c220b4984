package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// The bounds for callers that have not proved the secret. While there are maxUnauthenticated, further ones
// wait in the listener's queue, and each has only hurriedWithin, so that silent callers do not keep the ranks
// out for long.
const (
	maxUnauthenticated = 64
	authTimeout        = 5 * time.Second
	hurriedWithin      = 250 * time.Millisecond
)

// keepAlive detects a host that has vanished, within about 11 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// server is rank 0's side: it connects a table with the ranks.
type server struct {
	secret   [secretSize]byte
	listener net.Listener
	// a semaphore: each caller that has not proved the secret yet takes one of maxUnauthenticated places
	places   chan struct{}
	deadline *time.Timer // of the start

	authTimeout time.Duration
	serving     sync.WaitGroup
	accepting   sync.Once // begins when rank 0 has joined

	mu      sync.Mutex
	table   *table
	links   []*link                // by rank
	callers map[net.Conn]time.Time // connected callers: since when, or 0 for ranks of the job
	refused int                    // callers
	lastly  string                 // the last refused caller, and why
	closed  bool

	watch *watch // nil if not wanted
}

// listen makes a server. It accepts callers when rank 0 has joined; until then they wait in the listener's
// queue. So rank 0, whose process serves the others, is the last to learn that the start has failed. The
// start fails if not all ranks have come by the deadline.
func listen(ctx context.Context, c Config) (*server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listenAddress(c.Address))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("rank 0 cannot listen for the other ranks at %s: the port is taken on this "+
			"host, by another program, another job, or a second process with rank 0: choose another port",
			c.Address)
	}
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot listen for the other ranks at %s: %w", c.Address, err)
	}
	id := make([]byte, 8)
	rand.Read(id)
	s := &server{secret: c.Secret, listener: l, places: make(chan struct{}, maxUnauthenticated),
		table: newTable(hex.EncodeToString(id), c.Size), links: make([]*link, c.Size),
		callers: map[net.Conn]time.Time{}, authTimeout: cmp.Or(c.authTimeout, authTimeout)}
	s.table.survive = c.Survive
	if c.Stuck > 0 {
		s.watch = startWatch(s, c)
	}
	s.deadline = time.AfterFunc(c.Within, func() { s.expire(c.Within) })
	return s, nil
}

// listenAddress returns the address at which rank 0 listens: a loopback address if the ranks are given that,
// else the port on all interfaces, since a name may resolve late, or to an address that this host does not
// have.
func listenAddress(address string) string {
	host, port, _ := net.SplitHostPort(address)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return address
	}
	if host == "localhost" {
		return address
	}
	return net.JoinHostPort("", port)
}

func (s *server) accept() {
	for {
		select {
		case s.places <- struct{}{}:
		default:
			s.hurry()
			s.places <- struct{}{}
		}
		conn, err := s.listener.Accept()
		if err != nil {
			<-s.places
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(50 * time.Millisecond) // probably out of descriptors
			continue
		}
		conn.(*net.TCPConn).SetKeepAliveConfig(keepAlive)
		s.take(conn)
	}
}

// take serves a caller that has a place. The caller is registered when take returns: hurry misses none.
func (s *server) take(conn net.Conn) {
	s.note(conn)
	s.serving.Go(func() { s.serve(conn) })
}

// hurry shortens the deadlines of all callers that have not proved the secret yet.
func (s *server) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, since := range s.callers {
		if !since.IsZero() {
			conn.SetDeadline(since.Add(hurriedWithin))
		}
	}
}

// serve serves one caller until its connection ends. It returns the caller's place after the handshake,
// whether that admits the caller or not.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	defer s.forget(conn)
	l, h, err := admit(conn, s.secret)
	<-s.places
	if err != nil {
		s.refuse(conn, err)
		return
	}
	if !s.join(l, h) {
		return
	}
	for {
		m, err := l.receive()
		if err != nil {
			s.leave(h.rank, err)
			return
		}
		if m.kind == kindState {
			if err := s.watch.take(h.rank, m.text); err != nil {
				s.leave(h.rank, err)
				return
			}
			continue
		}
		s.mu.Lock()
		out, err := s.table.handle(h.rank, m)
		s.mu.Unlock()
		if m.kind == kindFarewell {
			s.watch.ended(h.rank)
		}
		if s.deliver(out); err != nil {
			s.leave(h.rank, err)
			return
		}
	}
}

// note registers a caller that has not proved the secret, so that hurry and close find it.
func (s *server) note(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	now := time.Now()
	s.callers[conn] = now
	conn.SetDeadline(now.Add(s.authTimeout))
}

func (s *server) forget(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.callers, conn)
}

func (s *server) refuse(conn net.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
	s.lastly = fmt.Sprintf("%v: %.200v", conn.RemoteAddr(), err)
}

// join admits a rank, and reports whether it did.
func (s *server) join(l *link, h hello) bool {
	s.mu.Lock()
	if !s.closed {
		s.callers[l.conn] = time.Time{}
	}
	l.conn.SetDeadline(time.Time{})
	if a, ok := l.conn.LocalAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		s.table.address = a.AddrPort().Addr().Unmap().WithZone("").String()
	}
	out, refused := s.table.join(h)
	if refused == nil {
		s.links[h.rank] = l
		if h.rank == 0 {
			s.accepting.Do(func() { s.serving.Go(s.accept) })
		}
		if s.table.started {
			s.deadline.Stop()
		}
	}
	s.mu.Unlock()
	if refused != nil { // before rank 0 learns of it and ends
		l.send(*refused)
	}
	s.deliver(out)
	return refused == nil
}

func (s *server) leave(rank uint32, err error) {
	how := "its connection to rank 0 failed: " + err.Error()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		how = "it has ended without Finalize"
	}
	s.watch.ended(rank)
	s.mu.Lock()
	out := s.table.leave(rank, how)
	s.mu.Unlock()
	s.deliver(out)
}

func (s *server) expire(within time.Duration) {
	s.mu.Lock()
	refused := ""
	if s.refused > 0 {
		refused = fmt.Sprintf("; callers refused: %d, the last from %s", s.refused, s.lastly)
	}
	out := s.table.expire(within, refused)
	s.mu.Unlock()
	s.deliver(out)
}

// deliver sends messages. A rank that cannot be written to is ending, and the end of its connection is
// noticed where it is read.
func (s *server) deliver(out []delivery) {
	for len(out) > 0 {
		if !out[0].final() {
			s.send(out[0], sendWithin)
			out = out[1:]
			continue
		}
		// The end of the job is sent to all ranks of a turn concurrently: a rank that does not read delays no
		// other.
		n := 1
		for n < len(out) && out[n].turn() == out[0].turn() {
			n++
		}
		var all sync.WaitGroup
		for _, d := range out[:n] {
			all.Go(func() { s.send(d, endWithin) })
		}
		all.Wait()
		out = out[n:]
	}
}

// endWithin bounds the writing of the job's end to a rank, which may be stopped.
const endWithin = time.Second

func (s *server) send(d delivery, within time.Duration) {
	s.mu.Lock()
	l := s.links[d.rank]
	s.mu.Unlock()
	// The deadline also applies to a write of another goroutine that may be under way.
	l.conn.SetWriteDeadline(time.Now().Add(within))
	if l.sendWithin(d.message, within) != nil {
		l.conn.Close()
	}
}

// await waits until all ranks have ended their connections, or ctx ends. Then it closes the remaining
// connections.
func (s *server) await(ctx context.Context) error {
	s.listener.Close()
	s.mu.Lock()
	for conn, since := range s.callers {
		if !since.IsZero() {
			conn.Close()
		}
	}
	s.mu.Unlock()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.serving.Wait()
	}()
	var err error
	select {
	case <-over:
	case <-ctx.Done():
		err = errors.New("not all ranks have said farewell to rank 0")
	}
	s.close()
	<-over
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, m := range s.table.members {
		if m.state != finished && !(s.table.survive && m.state == gone) {
			return &LostError{r, cmp.Or(err, errors.New("it has ended without Finalize")).Error()}
		}
	}
	return err
}

func (s *server) close() {
	s.deadline.Stop()
	s.listener.Close()
	s.mu.Lock()
	s.closed, s.table.over = true, true
	for conn := range s.callers {
		conn.Close()
	}
	s.mu.Unlock()
	s.watch.stop()
	s.serving.Wait()
}
