package tcp

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"
)

// faults are what becomes of the bytes of one direction of a connection. Its zero value is a wire without
// faults.
type faults struct {
	flip  int           // number of the bit of the stream to flip, counted from 1
	cut   int           // the connection is cut when so many bytes are through, plus 1
	chop  int           // the bytes come in pieces of so many at most
	delay time.Duration // before each piece
	masks map[int]byte  // bytes of the stream that are changed
	keep  bool          // what comes out is kept
}

// wire is one direction of a connection, with its faults and what they have done.
type wire struct {
	faults
	passed atomic.Int64 // bytes that went in
	struck atomic.Int64 // flips and cuts
	pieces atomic.Int64
	kept   []byte
	cuts   *cuts // counts the cut
}

// pass puts the next bytes on the wire: what comes out, and whether it is cut after that.
func (w *wire) pass(b []byte) (out []byte, cut bool) {
	began := int(w.passed.Load())
	if w.cut > 0 && w.cut-1 < began+len(b) {
		b, cut = b[:w.cut-1-began], true
		w.struck.Inc()
		if w.cuts != nil {
			w.cuts.struck.Inc()
		}
	}
	w.passed.Add(int64(len(b)))
	if at := w.flip - 1 - began*8; w.flip > 0 && at >= 0 && at < len(b)*8 {
		b[at/8] ^= 1 << (at % 8)
		w.struck.Inc()
	}
	for at, mask := range w.masks {
		if at -= began; at >= 0 && at < len(b) && mask != 0 {
			b[at] ^= mask
			w.struck.Inc()
		}
	}
	if w.keep {
		w.kept = append(w.kept, b...)
	}
	return b, cut
}

// piece is the length of the next piece of n bytes.
func (w *wire) piece(n int) int {
	w.pieces.Inc()
	if w.chop > 0 {
		return min(w.chop, n)
	}
	return n
}

// proxy is a TCP proxy in front of an endpoint. The next connection through it has the faults that it is
// armed with.
type proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu    sync.Mutex
	next  [2]*wire // to the target and back, of the next connection
	every faults   // of all connections, in both directions
	cuts  *cuts    // nil, or where each is cut
	open  []net.Conn
	ended bool // by close
}

// newProxy listens in front of an address of the fabric. Every connection that is not given others has these
// faults, both ways.
func newProxy(addr string, every faults) (*proxy, error) { return newCuttingProxy(addr, every, nil) }

// newCuttingProxy cuts each connection, if it is told where.
func newCuttingProxy(addr string, every faults, c *cuts) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: strings.TrimPrefix(addr, "tcp:"), every: every, cuts: c}
	p.wg.Go(p.serve)
	return p, nil
}

// addr is what peers connect to.
func (p *proxy) addr() string { return "tcp:" + p.listener.Addr().String() }

// arm gives the next connection its faults, to the target and back.
func (p *proxy) arm(to, from faults) [2]*wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = [2]*wire{{faults: to}, {faults: from}}
	return p.next
}

// waits reports whether the faults that it is armed with have got no connection yet.
func (p *proxy) waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next[0] != nil
}

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		t, err := net.Dial("tcp", p.target)
		if err != nil {
			reject(c)
			if p.cuts != nil { // whoever calls again is to find that nobody listens, as without a proxy
				p.listener.Close()
				return
			}
			continue
		}
		p.mu.Lock()
		if p.ended {
			p.mu.Unlock()
			reject(c)
			reject(t)
			return
		}
		wires := p.next
		p.next = [2]*wire{}
		p.open = append(p.open, c, t)
		p.wg.Add(1)
		p.mu.Unlock()
		for i := range wires {
			if wires[i] == nil {
				wires[i] = &wire{faults: p.every}
			}
		}
		if p.cuts != nil {
			p.cuts.arm(wires)
		}
		var both sync.WaitGroup
		both.Go(func() { wires[0].pump(t, c) })
		both.Go(func() { wires[1].pump(c, t) })
		go func() { both.Wait(); c.Close(); t.Close(); p.wg.Done() }()
	}
}

// cuts is where connections are cut, each once and in one direction: at random, after their handshake.
type cuts struct {
	minBytes, maxBytes int // bytes
	struck             atomic.Int64

	mu     sync.Mutex
	random *rand.Rand
}

func (c *cuts) arm(wires [2]*wire) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := wires[c.random.IntN(2)]
	w.cut = 1 + c.minBytes + c.random.IntN(c.maxBytes-c.minBytes)
	w.cuts = c
}

// reject resets a connection.
func reject(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// pump carries one direction to its end: an orderly one ends the direction, a reset or a cut the connection.
func (w *wire) pump(to, from net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		out, cut := w.pass(b[:n])
		for len(out) > 0 {
			time.Sleep(w.delay)
			k := w.piece(len(out))
			if _, err := to.Write(out[:k]); err != nil {
				reject(from)
				return
			}
			out = out[k:]
		}
		switch {
		case cut:
			reject(to)
			reject(from)
			return
		case errors.Is(err, io.EOF):
			to.(*net.TCPConn).CloseWrite()
			return
		case err != nil:
			reject(to)
			return
		}
	}
}

// close ends the proxy and everything through it.
func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.ended = true
	for _, c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// line joins the queue pairs of two sessions over two wires, in one goroutine, so that everything is in the
// same order each time.
type line struct {
	ends    [2]*session
	wires   [2]*wire  // from the first end, from the second
	pending [2][]byte // what is on its way
	ended   [2]bool   // nothing more comes of that end
}

// run carries bytes until nothing moves any more.
func (l *line) run(tb testing.TB) {
	for moved := true; moved; {
		moved = false
		for i := range l.ends {
			moved = l.take(tb, i) || moved
			moved = l.give(tb, i) || moved
		}
	}
	require.Empty(tb, l.pending[0])
	require.Empty(tb, l.pending[1])
}

// take puts on the wire what an end has sent.
func (l *line) take(tb testing.TB, i int) (moved bool) {
	var b [16 << 10]byte
	for !l.ended[i] {
		l.ends[i].poll()
		n, err := syscall.Read(l.ends[i].wire, b[:])
		if err == syscall.EAGAIN {
			return moved
		}
		moved = true
		out, cut := l.wires[i].pass(b[:max(n, 0)])
		l.pending[i] = append(l.pending[i], out...)
		if cut {
			l.ended = [2]bool{true, true} // what has come through before arrives
		}
		if n <= 0 {
			require.True(tb, err == nil || err == syscall.ECONNRESET, "%v", err)
			l.ended[i] = true
		}
	}
	return moved
}

// give has the other end receive what is on the wire.
func (l *line) give(tb testing.TB, i int) (moved bool) {
	to := l.ends[1-i]
	for len(l.pending[i]) > 0 {
		n, err := syscall.Write(to.wire, l.pending[i][:l.wires[i].piece(len(l.pending[i]))])
		to.poll()
		switch err {
		case nil:
			l.pending[i] = l.pending[i][n:]
		case syscall.EPIPE:
			l.pending[i] = nil
		default:
			require.Equal(tb, syscall.EAGAIN, err)
			return moved
		}
		moved = true
	}
	if l.ended[i] {
		syscall.Shutdown(to.wire, syscall.SHUT_WR)
		to.poll()
	}
	return moved
}
