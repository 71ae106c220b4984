package verbstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// trial is one run of one check.
type trial struct {
	provider Provider
	timeout  time.Duration
	devices  []transport.Device
	has      func(transport.DeviceAttr) (bool, string) // what the check needs; nil for nothing
}

type failure struct{ err error }

func (t *trial) failf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (t *trial) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// needs skips the check if the provider lacks an ability.
func (t *trial) needs(has bool, what string) {
	if !has {
		panic(failure{fmt.Errorf("the provider has no %s: %w", what, errors.ErrUnsupported)})
	}
}

// is checks that err is one of the given errors.
func (t *trial) is(err error, what string, want ...error) {
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	t.failf("%s: got error %v, want one of %v", what, err, want)
}

// closeAll closes all devices. It runs at the end of the check, if not before.
func (t *trial) closeAll() {
	for i := len(t.devices) - 1; i >= 0; i-- {
		_ = t.devices[i].Close() // other checks test Close
	}
	t.devices = nil
}

func (t *trial) faults() Faults {
	f, ok := t.provider.(Faults)
	if !ok {
		panic(failure{fmt.Errorf("the provider injects no faults: %w", errors.ErrUnsupported)})
	}
	return f
}

func (t *trial) newDevices(n int) []transport.Device {
	devices, err := t.provider.Devices(n)
	t.must(err)
	t.devices = append(t.devices, devices...)
	if len(devices) != n {
		t.failf("Devices(%d) made %d", n, len(devices))
	}
	if t.has != nil && n > 0 {
		t.needs(t.has(devices[0].Query()))
	}
	return devices
}

// shape has the properties of a check's queue pairs; a zero field means the default.
type shape struct {
	sendWR, recvWR, reads int
	cqDepth               int
	separate              bool // a CQ for sends and one for receives
}

func (s shape) filled() shape {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&s.sendWR, 64)
	set(&s.recvWR, 64)
	set(&s.reads, 8)
	set(&s.cqDepth, 1024)
	return s
}

// node is a rank: a device, its objects, and every completion that it has polled.
type node struct {
	t      *trial
	dev    transport.Device
	rank   uint32
	pd     transport.PD
	sendCQ transport.CQ
	recvCQ transport.CQ
	ep     transport.Endpoint
	shape  shape

	qp     transport.QP // the connection of a pair
	wcs    []transport.WC
	placed []transport.QPN

	mu       sync.Mutex // guards what the acceptor writes
	private  []byte     // what Prepare answers
	refusal  error      // what Prepare answers
	prepared int
	qps      map[uint32][]transport.QP
	greeting map[uint32][]byte
	refused  []error
}

func (n *node) Prepare(rank uint32) (transport.QPConfig, []byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.prepared++
	return transport.QPConfig{PD: n.pd, SendCQ: n.sendCQ, RecvCQ: n.recvCQ, SendWR: n.shape.sendWR,
		RecvWR: n.shape.recvWR, Reads: n.shape.reads}, n.private, n.refusal
}

func (n *node) Connected(rank uint32, qp transport.QP, private []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.qps[rank] = append(n.qps[rank], qp)
	n.greeting[rank] = private
}

func (n *node) Refused(_ string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = append(n.refused, err)
}

// to returns the queue pairs to a rank that have been handed over.
func (n *node) to(rank uint32) []transport.QP {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]transport.QP(nil), n.qps[rank]...)
}

// secret is the secret of the jobs in these tests.
var secret = [32]byte{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3}

// ports is the number of ports of each rank.
const ports = 3

func (t *trial) identity(rank, size int) transport.Identity {
	return transport.Identity{Job: "verbstest", Rank: uint32(rank), Size: uint32(size), Ports: ports,
		Secret: secret}
}

// open makes a PD and CQs on a device, without an endpoint.
func (t *trial) open(dev transport.Device, s shape) *node {
	n := &node{t: t, dev: dev, shape: s.filled(), qps: map[uint32][]transport.QP{},
		greeting: map[uint32][]byte{}}
	limits := dev.Query()
	n.shape.sendWR = min(n.shape.sendWR, limits.MaxQPDepth)
	n.shape.recvWR = min(n.shape.recvWR, limits.MaxQPDepth)
	n.shape.reads = min(n.shape.reads, limits.MaxReads)
	var err error
	n.pd, err = dev.AllocPD()
	t.must(err)
	n.sendCQ, err = dev.CreateCQ(n.shape.cqDepth, 0)
	t.must(err)
	n.recvCQ = n.sendCQ
	if s.separate {
		n.recvCQ, err = dev.CreateCQ(n.shape.cqDepth, 0)
		t.must(err)
	}
	return n
}

func (n *node) listen(id transport.Identity) {
	n.rank = id.Rank
	var err error
	n.ep, err = n.dev.Listen(id, n)
	n.t.must(err)
}

// ranks makes n listening, unconnected ranks.
func (t *trial) ranks(n int, s shape) []*node {
	var nodes []*node
	for i, d := range t.newDevices(n) {
		x := t.open(d, s)
		x.listen(t.identity(i, n))
		nodes = append(nodes, x)
	}
	return nodes
}

// pair makes two connected ranks; the first began the connection.
func (t *trial) pair(s shape) (a, b *node) {
	nodes := t.ranks(2, s)
	a, b = nodes[0], nodes[1]
	a.qp, b.qp = t.connect(a, b)
	return a, b
}

// both returns each end of a pair with the other.
func both(a, b *node) [2][2]*node { return [2][2]*node{{a, b}, {b, a}} }

// connect connects two ranks and returns the newest queue pair of each.
func (t *trial) connect(a, b *node) (transport.QP, transport.QP) {
	before := len(b.to(a.rank))
	t.must(a.dial(b))
	qa := a.to(b.rank)
	if len(qa) == 0 {
		t.failf("Connect returned before Connected was called")
	}
	t.eventually("Connected at the side that accepted", func() bool { return len(b.to(a.rank)) > before })
	qb := b.to(a.rank)
	return qa[len(qa)-1], qb[len(qb)-1]
}

func (n *node) dial(to *node) error { return n.dialAs(to.rank, to.ep.Addr()) }

func (n *node) dialAs(rank uint32, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), n.t.timeout)
	defer cancel()
	return n.ep.Connect(ctx, rank, addr)
}

// eventually waits for a condition that other goroutines make true.
func (t *trial) eventually(what string, cond func() bool) {
	for end := time.Now().Add(t.timeout); !cond(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			t.failf("waited in vain for: %s", what)
		}
	}
}

// poll makes one pass over the rank's CQs, keeps the completions, and returns how many there were.
func (n *node) poll() int {
	var wc [16]transport.WC
	var num [16]transport.QPN
	found := 0
	for _, cq := range n.cqs() {
		k := cq.Poll(wc[:])
		n.wcs = append(n.wcs, wc[:k]...)
		found += k
		k = cq.Placed(num[:])
		n.placed = append(n.placed, num[:k]...)
		found += k
	}
	return found
}

func (n *node) cqs() []transport.CQ {
	if n.recvCQ == n.sendCQ {
		return []transport.CQ{n.sendCQ}
	}
	return []transport.CQ{n.sendCQ, n.recvCQ}
}

// until drives the nodes, in turns and on this goroutine, until cond.
func (t *trial) until(what string, cond func() bool, nodes ...*node) {
	end := time.Now().Add(t.timeout)
	for idle := 0; !cond(); idle++ {
		for _, n := range nodes {
			if n.poll() > 0 {
				idle = 0
			}
		}
		if idle < 64 || len(nodes) == 0 {
			runtime.Gosched()
			continue
		}
		// an early or fruitless return only costs another round
		_ = nodes[idle%len(nodes)].recvCQ.Wait(200 * time.Microsecond)
		if time.Now().After(end) {
			t.failf("waited in vain for: %s%s", what, describe(nodes))
		}
	}
}

func describe(nodes []*node) string {
	text := ""
	for _, n := range nodes {
		last := n.wcs[max(len(n.wcs)-10, 0):]
		text += fmt.Sprintf("\n  rank %d: %d completions, the last %v", n.rank, len(n.wcs), last)
		if n.qp != nil {
			text += fmt.Sprintf(", %v, %v", n.qp.State(), n.qp.Err())
		}
	}
	return text
}

// settle drives the nodes for a number of passes in which nothing more is expected.
func (t *trial) settle(nodes ...*node) {
	for range 200 {
		for _, n := range nodes {
			n.poll()
		}
		runtime.Gosched()
	}
}

// polls polls the nodes in turn for a number of rounds, without waiting.
func (t *trial) polls(rounds int, nodes ...*node) {
	for range rounds {
		for _, n := range nodes {
			n.poll()
		}
	}
}

// take drives the nodes until n has k completions, and returns these.
func (t *trial) take(n *node, k int, nodes ...*node) []transport.WC {
	t.until(fmt.Sprintf("%d completions at rank %d", k, n.rank), func() bool { return len(n.wcs) >= k },
		nodes...)
	out := append([]transport.WC(nil), n.wcs[:k]...)
	n.wcs = n.wcs[k:]
	return out
}

// one takes one completion, which must be the success of the given request.
func (t *trial) one(n *node, id uint64, op transport.Opcode, nodes ...*node) transport.WC {
	wc := t.take(n, 1, nodes...)[0]
	if wc.ID != id || wc.Op != op || wc.Status != transport.StatusSuccess || wc.Err != nil {
		t.failf("rank %d: completion %+v, want success of request %d, opcode %d", n.rank, wc, id, op)
	}
	return wc
}

// arm makes the rank's queues report everything that is placed from now on, even where it polls memory
// otherwise (DeviceAttr.MaxPolledQPs).
func (t *trial) arm(n *node) {
	for _, cq := range n.cqs() {
		cq.Arm()
	}
	t.settle(n)
	n.placed = nil
}

// direct reports whether the rank accesses its peers' memory directly: its Reads and Atomics can complete
// although the peer is not driven.
func (n *node) direct() bool { return n.dev.Query().MaxPolledQPs > 0 }

// none checks that no completion is left.
func (t *trial) none(nodes ...*node) {
	t.settle(nodes...)
	for _, n := range nodes {
		if len(n.wcs) > 0 {
			t.failf("rank %d: completions that nobody asked for: %+v", n.rank, n.wcs)
		}
	}
}

// well checks that the queue pairs of a pair still work, with a message.
func (t *trial) well(a, b *node) {
	for _, n := range []*node{a, b} {
		if s, err := n.qp.State(), n.qp.Err(); s != transport.StateReady || err != nil {
			t.failf("rank %d: queue pair is %v, %v; want it ready", n.rank, s, err)
		}
	}
	ra, rb := a.memory(64, all), b.memory(64, all)
	fill(ra.Bytes(), 9, 1)
	t.must(b.qp.PostRecv(recv(0xbeef, rb)))
	t.must(a.qp.PostSend(send(0xfeed, ra)))
	t.one(a, 0xfeed, transport.OpSend, a, b)
	t.one(b, 0xbeef, transport.OpRecv, a, b)
	t.must(check(rb.Bytes(), 9, 1))
	t.must(ra.Deregister())
	t.must(rb.Deregister())
}

// all is all rights.
const all = transport.LocalWrite | transport.RemoteRead | transport.RemoteWrite

// memory returns a new region of the given size.
func (n *node) memory(size int, access transport.Access) transport.MR {
	m, err := n.pd.Alloc(max(size, 1), access)
	n.t.must(err)
	return m
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
