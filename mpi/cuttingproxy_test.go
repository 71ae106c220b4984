package mpi_test

import (
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gates are TCP proxies in front of ranks, which cut connections.
type gates struct {
	t  *testing.T
	wg sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	open      []*passage
	changed   *sync.Cond // one is cut, or carries messages
}

// passage is a connection through a gate.
type passage struct {
	g       *gates
	ends    [2]net.Conn
	carried [2]int // bytes, by direction
	fuse    [2]int // so many more bytes get through, and then the connection is cut; -1: it is not
	cut     bool

	patience int // so many more bytes may get through all connections until this one is cut in any case
}

func newGates(t *testing.T) *gates {
	g := &gates{t: t}
	g.changed = sync.NewCond(&g.mu)
	t.Cleanup(g.close)
	return g
}

// before opens a gate in front of a rank, and gives its address.
func (g *gates) before(_ int, addr string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(g.t, err)
	g.mu.Lock()
	g.listeners = append(g.listeners, l)
	g.mu.Unlock()
	g.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				continue
			}
			p := &passage{g: g, ends: [2]net.Conn{c, to}, fuse: [2]int{-1, -1}}
			g.mu.Lock()
			g.open = append(g.open, p)
			g.mu.Unlock()
			for d := range p.ends {
				g.wg.Go(func() { p.carry(d) })
			}
		}
	})
	return l.Addr().String()
}

// carry carries one direction until it ends, or the connection is cut: then what has come after the place of
// the cut is lost.
func (p *passage) carry(direction int) {
	from, to := p.ends[direction], p.ends[1-direction]
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		p.g.mu.Lock()
		cut := p.fuse[direction] >= 0 && p.fuse[direction] < n
		if cut {
			n = p.fuse[direction]
		} else if p.fuse[direction] >= 0 {
			p.fuse[direction] -= n
		}
		if p.carried[direction] += n; p.carried[direction] > startup {
			p.g.changed.Broadcast()
		}
		passed := p.g.passed(n)
		p.g.mu.Unlock()
		for _, other := range passed {
			other.end()
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				cut = true
			}
		}
		switch {
		case cut:
			p.end()
			return
		case err == io.EOF:
			to.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			p.end()
			return
		}
	}
}

// passed counts what some connection has carried, and gives those that are to be cut and have seen too much
// go another way meanwhile.
func (g *gates) passed(n int) (list []*passage) {
	for _, p := range g.open {
		if p.fuse[0] < 0 && p.fuse[1] < 0 {
			continue
		}
		if p.patience -= n; p.patience < 0 {
			list = append(list, p)
		}
	}
	return list
}

// end resets both connections.
func (p *passage) end() {
	for _, c := range p.ends {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	p.g.mu.Lock()
	defer p.g.mu.Unlock()
	p.cut = true
	p.g.open = slices.DeleteFunc(p.g.open, func(o *passage) bool { return o == p })
	p.g.changed.Broadcast()
}

// startup is more than any start-up takes: a connection that has carried so much is a lane.
const startup = 8 << 10

// patience is how much all connections may carry until one that is to be cut is cut wherever it is: which
// lanes have anything to carry is not for these tests to say.
const patience = 8 << 20

// cut cuts some of the connections that are lanes, one at least, each a number of bytes later that is chosen
// at random, in either direction, and waits until it has happened. It gives their number.
func (g *gates) cut(rng *rand.Rand, maxBytes int) int {
	late := false
	defer after(time.Minute, func() {
		g.mu.Lock()
		late = true
		g.mu.Unlock()
		g.changed.Broadcast()
	})()
	g.mu.Lock()
	defer g.mu.Unlock()
	var lanes []*passage
	for {
		for _, p := range g.open {
			if p.carried[0]+p.carried[1] > startup {
				lanes = append(lanes, p)
			}
		}
		if len(lanes) > 0 {
			break
		}
		require.False(g.t, late, "there is no lane")
		g.changed.Wait()
	}
	rng.Shuffle(len(lanes), func(i, k int) { lanes[i], lanes[k] = lanes[k], lanes[i] })
	lanes = lanes[:min(maxBytes, len(lanes))]
	for _, p := range lanes {
		p.fuse[rng.IntN(2)], p.patience = rng.IntN(32<<10), patience
	}
	for slices.ContainsFunc(lanes, func(p *passage) bool { return !p.cut }) {
		require.False(g.t, late, "a connection carries nothing")
		g.changed.Wait()
	}
	return len(lanes)
}

func (g *gates) close() {
	g.mu.Lock()
	for _, l := range g.listeners {
		l.Close()
	}
	for _, p := range g.open {
		for _, c := range p.ends {
			c.Close()
		}
	}
	g.mu.Unlock()
	g.wg.Wait()
}
