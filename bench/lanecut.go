package bench

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// laneCut passes the connections to an address on, and can lose one of them: first what is sent through it
// stays where it is, as behind a link that is down, and then it breaks. It is the first one by which much
// comes at once.
type laneCut struct {
	listener net.Listener
	target   string
	works    sync.WaitGroup
	armed    atomic.Bool
	victim   atomic.Pointer[lane]

	mu    sync.Mutex
	lanes []*lane
}

// lane is a connection that is passed on.
type lane struct {
	ends   [2]net.Conn
	broken chan struct{}
	once   sync.Once
}

// newLaneCut listens for connections to an address of the TCP fabric.
func newLaneCut(addr string) (*laneCut, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &laneCut{listener: l, target: strings.TrimPrefix(addr, "tcp:")}
	c.works.Go(c.accept)
	return c, nil
}

// addr takes the place of the target's address.
func (c *laneCut) addr() string { return "tcp:" + c.listener.Addr().String() }

func (c *laneCut) accept() {
	for {
		from, err := c.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", c.target)
		if err != nil {
			from.Close()
			continue
		}
		l := &lane{ends: [2]net.Conn{from, to}, broken: make(chan struct{})}
		c.mu.Lock()
		c.lanes = append(c.lanes, l)
		c.mu.Unlock()
		for i := range l.ends {
			c.works.Go(func() { c.pass(l, i) })
		}
	}
}

// pass passes on what comes from an end of a lane, until one of them is closed or the lane is the one to
// lose.
func (c *laneCut) pass(l *lane, end int) {
	const much = 4 << 10 // more than an acknowledgement
	from, to := l.ends[end], l.ends[1-end]
	defer l.lose()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if n >= much && c.armed.CompareAndSwap(true, false) {
			c.victim.Store(l)
		}
		if c.victim.Load() == l {
			<-l.broken
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *lane) lose() {
	l.once.Do(func() { close(l.broken) })
	l.ends[0].Close()
	l.ends[1].Close()
}

// arm has the next connection by which much comes carry nothing more.
func (c *laneCut) arm() { c.armed.Store(true) }

// stopped reports whether there is one.
func (c *laneCut) stopped() bool { return c.victim.Load() != nil }

// cut breaks it.
func (c *laneCut) cut() { c.victim.Load().lose() }

// close ends all connections.
func (c *laneCut) close() {
	c.listener.Close()
	c.mu.Lock()
	for _, l := range c.lanes {
		l.lose()
	}
	c.mu.Unlock()
	c.works.Wait()
}
