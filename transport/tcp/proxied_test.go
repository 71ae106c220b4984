package tcp

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/cm"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
	"github.com/weft-mpi/weft/transport/verbstest"
)

// proxied is two devices, of ranks 0 and 1, with a proxy in front of rank 0, through which rank 1 connects.
type proxied struct {
	*testing.T
	*proxiedPair                  // of the latest play
	hurried, patient *proxiedPair // for a handshake that a fault strikes, and for any other

	found func(error) // gets what is wrong; without it nothing may be
}

// A proxiedPair is two hosts with a proxy between them.
type proxiedPair struct {
	hosts  [2]*host
	actors [2]*actor
	proxy  *proxy

	patience time.Duration // how long the handshake may take
}

// handshakePatience is how long handshake may take with bytes missing: who waits for more than there will be is
// released by it.
const handshakePatience = 200 * time.Millisecond

func newProxied(t *testing.T, s scene, c Checksum) *proxied {
	return &proxied{T: t, hurried: newProxiedPair(t, s, c, handshakePatience),
		patient: newProxiedPair(t, s, c, patience)}
}

func newProxiedPair(t *testing.T, s scene, c Checksum, patience time.Duration) *proxiedPair {
	p := &proxiedPair{patience: patience}
	for i := range p.hosts {
		p.hosts[i] = newHostOfRank(t, Options{Checksum: c, AuthTimeout: patience}, uint32(i))
		p.actors[i] = newActor(t, s, i, p.hosts[i].pd)
	}
	var err error
	p.proxy, err = newProxy(p.hosts[0].ep.Addr(), faults{})
	require.NoError(t, err)
	t.Cleanup(p.proxy.close)
	return p
}

// play connects, acts the scene if that succeeds, and ends when both ends have. A wire with a fault strikes, or
// the play is given again: a hurried handshake can end by its time on a machine that is busy with other things.
func (p *proxied) play(to, from faults) (wires [2]*wire, connected bool) {
	p.Helper()
	p.proxiedPair = p.patient
	if startup := startupLengths(); to.within(startup[0]) || from.within(startup[1]) {
		p.proxiedPair = p.hurried
	}
	for range 50 {
		wires = p.proxy.arm(to, from)
		connected = p.once()
		if wanted := to.strikes() + from.strikes(); wires[0].struck.Load()+wires[1].struck.Load() == wanted {
			return wires, connected
		}
	}
	p.Fatalf("the faults %+v and %+v do not strike", to, from)
	return wires, false
}

// strikes is how often faults strike.
func (f faults) strikes() (n int64) {
	if f.flip > 0 {
		n++
	}
	if f.cut > 0 {
		n++
	}
	return n
}

// within reports whether a fault strikes one of the first n bytes.
func (f faults) within(n int) bool {
	return f.flip > 0 && (f.flip-1)/8 < n || f.cut > 0 && f.cut-1 < n
}

func (p *proxied) once() (connected bool) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	var qps [2]transport.QP
	e := p.hosts[1].dev.end
	peer, ok := e.table.Dial(0)
	require.True(p, ok)
	// once: Connect would try again
	q, err := e.dial(ctx, peer, 0, strings.TrimPrefix(p.proxy.addr(), "tcp:"))
	e.table.Dialed(peer, q)
	if err != nil {
		require.Empty(p, p.hosts[1].made)
	} else {
		qps[1] = p.hosts[1].nextMade().qp
	}
	select {
	case m := <-p.hosts[0].made:
		require.Equal(p, uint32(1), m.rank)
		require.Equal(p, "mine", m.private)
		p.hosts[0].reaches(1, cm.Connected)
		qps[0] = m.qp
	case r := <-p.hosts[0].refused:
		require.Error(p, r.err)
	case <-time.After(patience):
		p.Fatalf("rank 0 has neither a connection nor the news of one: rank 1 has %v", err)
	}
	for i, a := range p.actors {
		a.begin()
		p.hosts[i].wcs = nil
	}
	for i, qp := range qps {
		if qp != nil {
			p.actors[i].act(p, qp, p.actors[1-i])
		}
	}
	over := time.Now().Add(patience)
	for going := true; going; {
		going = false
		for i, h := range p.hosts {
			if qps[i] == nil {
				continue
			}
			var wc [16]transport.WC
			n := h.cq.Poll(wc[:])
			h.wcs = append(h.wcs, wc[:n]...)
			switch qps[i].State() {
			case transport.StateClosed, transport.StateError:
				going = going || n > 0
			default:
				going = true
				require.True(p, time.Now().Before(over), "rank %d is %v", i, qps[i].State())
				if n == 0 {
					require.NoError(p, h.cq.Wait(time.Millisecond))
				}
			}
		}
	}
	for i, qp := range qps {
		if qp == nil {
			continue
		}
		p.actors[i].wcs = p.hosts[i].wcs
		switch err := p.actors[i].check(p.actors[1-i]); {
		case p.found != nil && err != nil:
			p.found(err)
		default:
			require.NoError(p, err, "rank %d", i)
		}
		if qp.State() == transport.StateError {
			require.ErrorContains(p, qp.Err(), []string{"rank 1 at 127.0.0.1:", "rank 0 at 127.0.0.1:"}[i])
		}
		qp.Release()
		p.hosts[i].reaches(uint32(1-i), cm.None)
	}
	return qps[0] != nil && qps[1] != nil
}

// lengths are how many bytes each direction has, handshake and all.
func (p *proxied) lengths() [2]int {
	wires, connected := p.play(faults{}, faults{})
	require.True(p, connected)
	for i, h := range p.hosts {
		for _, wc := range h.wcs {
			require.Equal(p, transport.StatusSuccess, wc.Status, "rank %d", i)
		}
	}
	return [2]int{int(wires[0].passed.Load()), int(wires[1].passed.Load())}
}

// startupLengths are the bytes of handshake, in each direction.
func startupLengths() [2]int {
	p := testParties()
	private := []byte("mine")
	return [2]int{
		message.HelloSize + len(p.AppendRequest(p.AppendProof(nil, &testSecret), &testSecret, testParameters,
			private)),
		len(p.AppendChallenge(nil, &testSecret)) + len(p.AppendAccept(nil, &testSecret, testParameters,
			private)),
	}
}

// A bit of a connection, anywhere from its first byte on, flipped by itself: in the handshake no connection comes
// of it, and later it is found by a checksum. In no case is anything wrong delivered, and both sides end and
// say who the other was.
func TestProxy_FlippedBitsAreNoticed(t *testing.T) {
	p := newProxied(t, smallScene, ChecksumAlways)
	lengths, startup := p.lengths(), startupLengths()
	random := rand.New(rand.NewPCG(3, 4))
	rounds := testlength.Of(400, 60)
	stopped := 0
	for i := range rounds {
		direction := i % 2
		bit := random.IntN(lengths[direction] * 8)
		if i%4 == 0 { // often in the handshake, which is short
			bit = random.IntN(startup[direction] * 8)
		}
		var f [2]faults
		f[direction].flip = bit + 1
		_, connected := p.play(f[0], f[1])
		inside := bit < startup[direction]*8
		require.Equal(t, !inside, connected, "bit %d of direction %d", bit, direction)
		for _, h := range p.hosts {
			if connected {
				continue
			}
			for _, wc := range h.wcs {
				require.NotEqual(t, transport.StatusSuccess, wc.Status, "bit %d of direction %d", bit,
					direction)
			}
		}
		if inside {
			stopped++
		}
	}
	require.Greater(t, stopped, rounds/4)
	p.lengths() // the next connection is well
}

// A connection that is cut, anywhere from its first byte on: both sides end, and what is posted completes
// once.
func TestProxy_C5_CutConnections(t *testing.T) {
	p := newProxied(t, smallScene, ChecksumAlways)
	step := testlength.Of(7, 71)
	startup := startupLengths()
	for direction, n := range p.lengths() {
		for at := 0; at < n; at += step {
			var f [2]faults
			f[direction].cut = at + 1
			_, connected := p.play(f[0], f[1])
			if at < startup[direction] {
				require.False(t, connected, "cut at byte %d of direction %d", at, direction)
			}
		}
	}
	p.lengths()
}

// A connection of which every byte comes by itself, or pieces come late, works all the same.
func TestProxy_PiecesAndDelays(t *testing.T) {
	for name, f := range map[string]faults{"bytes": {chop: 1},
		"delays": {chop: 150, delay: time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			p := newProxied(t, smallScene, ChecksumAlways)
			wires, connected := p.play(f, f)
			require.True(t, connected)
			for i, w := range wires {
				require.GreaterOrEqual(t, w.pieces.Load(), w.passed.Load()/int64(f.chop))
				for _, wc := range p.hosts[i].wcs {
					require.Equal(t, transport.StatusSuccess, wc.Status)
				}
			}
		})
	}
}

// Without checksums a flipped bit of a payload does get through the same proxy.
func TestProxy_WithoutChecksumItGetsThrough(t *testing.T) {
	p := newProxied(t, scene{{transport.OpSend, 64, 0}}, ChecksumNever)
	at := startupLengths()[0] + 2*frame.HeaderSize + 5 // after Ready and the Send's header
	var damaged error
	p.found = func(err error) { damaged = err }
	p.play(faults{flip: at*8 + 4}, faults{})
	require.ErrorContains(t, damaged, "Send 0 was delivered with wrong bytes")
}

// throughProxy makes devices that are reached through a proxy that cuts everything into pieces.
type throughProxy struct {
	provider
	cuts *cuts // nil, or where connections are cut
}

type proxiedDevice struct {
	*Device
	proxy *proxy
	cuts  *cuts
}

// Query tells no period: the suite's ticks have a time of their own, in which a proxy is never fast enough.
func (d proxiedDevice) Query() transport.DeviceAttr {
	a := d.Device.Query()
	a.TickPeriod = 0
	return a
}

func (d *proxiedDevice) inner() *Device { return d.Device }

func (p throughProxy) Devices(n int) (list []transport.Device, err error) {
	for range n {
		d, err := New(p.options)
		if err != nil {
			return list, err
		}
		list = append(list, &proxiedDevice{Device: d, cuts: p.cuts})
	}
	return list, nil
}

// Listen puts the proxy in front of the endpoint.
func (d *proxiedDevice) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	ep, err := d.Device.Listen(id, a)
	if err != nil {
		return nil, err
	}
	if d.proxy, err = newCuttingProxy(ep.Addr(), faults{chop: 4099}, d.cuts); err != nil {
		return nil, err
	}
	return proxiedEndpoint{ep, d.proxy}, nil
}

func (d *proxiedDevice) Close() error {
	err := d.Device.Close()
	if d.proxy != nil {
		d.proxy.close()
	}
	return err
}

type proxiedEndpoint struct {
	transport.Endpoint
	proxy *proxy
}

func (e proxiedEndpoint) Addr() string { return e.proxy.addr() }

func TestConformanceThroughProxy(t *testing.T) {
	testlength.NotInShort(t)
	t.Parallel()
	verbstest.Run(t, throughProxy{provider: provider{options: Options{Checksum: ChecksumAlways}}})
}
