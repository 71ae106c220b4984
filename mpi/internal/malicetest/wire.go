//go:build linux

package malicetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"

	"github.com/weft-mpi/weft/transport"
)

// Frames is for devices over TCP: it changes the frames of a rank, which are not authenticated.
func Frames(d transport.Device, seed uint64) (transport.Device, Misdeed) {
	p := newTap(seed)
	return tapped{d, p}, p
}

// tapped is a device over TCP whose frames are changed on their way to the peers. To these, this rank seems
// to send them so.
type tapped struct {
	transport.Device
	*tap
}

// tap forwards the connections of one rank, and changes what that rank sends: bytes of frames and their
// order. It repeats, omits and delays pieces, mixes connections, and cuts.
type tap struct {
	all sync.WaitGroup
	deeds

	mu     sync.Mutex
	rand   *rand.Rand
	rate   int    // one in so many pieces is changed
	old    []byte // an earlier piece of some connection
	closed bool
	open   []interface{ Close() error }
}

func newTap(seed uint64) *tap {
	random := rand.New(rand.NewPCG(seed, 101))
	return &tap{rand: random, rate: 1 + random.IntN(30)}
}

func (d tapped) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	e, err := d.Device.Listen(id, a)
	if err != nil {
		return nil, err
	}
	addr, err := d.listen(e.Addr(), false)
	return tappedEndpoint{e, d.tap, addr}, err
}

type tappedEndpoint struct {
	transport.Endpoint
	*tap
	addr string
}

func (e tappedEndpoint) Addr() string { return e.addr }

func (e tappedEndpoint) Connect(ctx context.Context, rank uint32, addr string) error {
	addr, err := e.listen(addr, true)
	if err != nil {
		return err
	}
	return e.Endpoint.Connect(ctx, rank, addr)
}

// listen returns an address that forwards to addr. The tapped rank is the one that connects, or the one at
// addr.
func (p *tap) listen(addr string, connects bool) (string, error) {
	const scheme = "tcp:"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.keep(l)
	p.all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(addr, scheme))
			if err != nil {
				from.Close()
				continue
			}
			p.keep(from)
			p.keep(to)
			p.all.Go(func() { p.pass(from, to, connects) })
			p.all.Go(func() { p.pass(to, from, !connects) })
		}
	})
	return scheme + l.Addr().String(), nil
}

func (p *tap) keep(c interface{ Close() error }) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open = append(p.open, c); p.closed {
		c.Close()
	}
}

// Stop ends all connections.
func (p *tap) Stop() {
	p.mu.Lock()
	p.closed = true
	for _, c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// startUp is more than the bytes that each side sends before the first frame.
const startUp = 2 << 10

// pass forwards one direction of a connection. lies is set if the tapped rank sends it.
func (p *tap) pass(from, to net.Conn, lies bool) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 64<<10)
	for passed := 0; ; {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		out, cut := b[:n], false
		if passed += n; lies && passed-n > startUp {
			out, cut = p.change(out)
		}
		if _, err := to.Write(out); err != nil || cut {
			return
		}
	}
}

// change returns a changed piece, and reports whether the connection is cut after it.
func (p *tap) change(b []byte) (out []byte, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.old
	if p.rand.IntN(4) == 0 {
		p.old = bytes.Clone(b)
	}
	if p.rand.IntN(p.rate) > 0 {
		return b, false
	}
	p.add()
	switch p.rand.IntN(12) {
	case 0:
		return nil, false
	case 1:
		return append(bytes.Clone(b), b...), false
	case 2: // from another time or lane
		return append(bytes.Clone(before), b...), false
	case 3:
		return before, false
	case 4:
		noise := make([]byte, 1+p.rand.IntN(100))
		for i := range noise {
			noise[i] = byte(p.rand.Uint32())
		}
		return append(noise, b...), false
	case 5:
		return b[:p.rand.IntN(len(b)+1)], p.rand.IntN(4) == 0
	default:
		spoil(p.rand, b)
	}
	return b, false
}
