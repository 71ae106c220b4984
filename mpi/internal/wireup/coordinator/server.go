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

// The bounds for callers that have not proved the secret. More than mostStrangers wait in the listener's
// queue.
const (
	mostStrangers  = 64
	strangerWithin = 5 * time.Second
)

// keepAlive finds a host that has gone without a word, within some 11 seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// server is rank 0's side: it connects a table with the ranks.
type server struct {
	secret   [secretSize]byte
	listener net.Listener
	places   chan struct{} // one for each caller that has not proved the secret
	deadline *time.Timer   // of the start
	serving  sync.WaitGroup

	mu      sync.Mutex
	table   *table
	links   []*link           // by rank
	callers map[net.Conn]bool // that are connected; true for those that are no ranks of the job yet
	refused int               // callers
	lastly  string            // who was refused last, and why
	address netip.Addr
	closed  bool
}

// listen begins to serve. The start fails when not all ranks have come within a time.
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
	s := &server{secret: c.Secret, listener: l, places: make(chan struct{}, mostStrangers),
		table: newTable(hex.EncodeToString(id), c.Size), links: make([]*link, c.Size),
		callers: map[net.Conn]bool{}}
	s.deadline = time.AfterFunc(c.Within, func() { s.expire(c.Within) })
	s.serving.Go(s.accept)
	return s, nil
}

// listenAddress is where rank 0 listens: at a loopback address if that is what the ranks are told, else at
// the port on all interfaces, for a name may resolve late, or to an address that is not this host's own.
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
		s.places <- struct{}{}
		conn, err := s.listener.Accept()
		if err != nil {
			<-s.places
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(50 * time.Millisecond) // out of descriptors, most likely
			continue
		}
		conn.(*net.TCPConn).SetKeepAliveConfig(keepAlive)
		s.serving.Go(func() { s.serve(conn) })
	}
}

// serve speaks with one caller until its connection ends. It gives the caller's place back.
func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	s.note(conn, true)
	defer s.note(conn, false)
	conn.SetDeadline(time.Now().Add(strangerWithin))
	l, h, err := admit(conn, s.secret)
	<-s.places
	if err != nil {
		s.refuse(conn, err)
		return
	}
	conn.SetDeadline(time.Time{})
	if !s.join(l, h) {
		return
	}
	for {
		m, err := l.receive()
		if err != nil {
			s.leave(h.rank, err)
			return
		}
		s.mu.Lock()
		out, err := s.table.handle(h.rank, m)
		s.mu.Unlock()
		if s.deliver(out); err != nil {
			s.leave(h.rank, err)
			return
		}
	}
}

// note keeps track of the connections that Close has to close.
func (s *server) note(conn net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !open:
		delete(s.callers, conn)
	case s.closed:
		conn.Close()
	default:
		s.callers[conn] = true
	}
}

func (s *server) refuse(conn net.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused++
	s.lastly = fmt.Sprintf("%v: %.200v", conn.RemoteAddr(), err)
}

// join takes a rank in and tells whether it has been.
func (s *server) join(l *link, h hello) bool {
	s.mu.Lock()
	out, refused := s.table.join(h)
	if refused == nil {
		s.links[h.rank] = l
		s.callers[l.conn] = false
		if a, ok := l.conn.LocalAddr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			s.address = a.AddrPort().Addr().Unmap()
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
	s.mu.Lock()
	out := s.table.leave(rank, how)
	s.mu.Unlock()
	s.deliver(out)
}

func (s *server) expire(within time.Duration) {
	s.mu.Lock()
	strangers := ""
	if s.refused > 0 {
		strangers = fmt.Sprintf("; callers refused: %d, the last from %s", s.refused, s.lastly)
	}
	out := s.table.expire(within, strangers)
	s.mu.Unlock()
	s.deliver(out)
}

// deliver sends messages. A rank that cannot be written to is ending, and the end of its connection is
// noticed where it is read.
func (s *server) deliver(out []delivery) {
	for _, d := range out {
		s.mu.Lock()
		l := s.links[d.rank]
		s.mu.Unlock()
		if l.send(d.message) != nil {
			l.conn.Close()
		}
	}
}

// await returns when all ranks have ended their connections, or ctx ends; then it ends what is left.
func (s *server) await(ctx context.Context) error {
	s.listener.Close()
	s.mu.Lock()
	for conn, stranger := range s.callers {
		if stranger {
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
		if m.state != finished {
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
	s.serving.Wait()
}
