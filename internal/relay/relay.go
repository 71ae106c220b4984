// Package relay forwards TCP connections, and can lose them: for tests and benchmarks of lost lanes.
package relay

import (
	"net"
	"strings"
	"sync"
)

// prefix is the prefix of addresses of the TCP fabric.
const prefix = "tcp:"

// Hold decides about n bytes from one end of a connection, total bytes from there in all. If it returns true
// they are not forwarded, nor is anything after them, until the connection is lost.
type Hold func(c *Conn, n int, total int64) bool

// Relay listens in place of an address, and forwards connections to it.
type Relay struct {
	listener net.Listener
	target   string
	hold     Hold
	works    sync.WaitGroup

	mu     sync.Mutex
	conns  []*Conn
	closed bool
}

// Conn is a forwarded connection.
type Conn struct {
	ends [2]net.Conn
	lost chan struct{}
	once sync.Once
}

// Listen makes a relay to an address of the TCP fabric. hold may be called concurrently.
func Listen(target string, hold Hold) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: l, target: strings.TrimPrefix(target, prefix), hold: hold}
	r.works.Go(r.accept)
	return r, nil
}

// Addr returns the address that replaces the target's.
func (r *Relay) Addr() string { return prefix + r.listener.Addr().String() }

func (r *Relay) accept() {
	for {
		from, err := r.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.target)
		if err != nil {
			from.Close()
			continue
		}
		c := &Conn{ends: [2]net.Conn{from, to}, lost: make(chan struct{})}
		r.mu.Lock()
		r.conns = append(r.conns, c)
		if r.closed {
			c.Lose()
		}
		r.mu.Unlock()
		for end := range c.ends {
			r.works.Go(func() { r.pass(c, end) })
		}
	}
}

// pass forwards data from one end of a connection, until that is closed or lost.
func (r *Relay) pass(c *Conn, end int) {
	defer c.Lose()
	from, to, total, b := c.ends[end], c.ends[1-end], int64(0), make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		total += int64(n)
		if r.hold(c, n, total) {
			<-c.lost
			return
		}
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}

// Lose ends a connection. Bytes that were not forwarded are lost.
func (c *Conn) Lose() {
	c.once.Do(func() { close(c.lost) })
	c.ends[0].Close()
	c.ends[1].Close()
}

// Close ends the relay and all its connections.
func (r *Relay) Close() {
	r.listener.Close()
	r.mu.Lock()
	r.closed = true
	for _, c := range r.conns {
		c.Lose()
	}
	r.mu.Unlock()
	r.works.Wait()
}
