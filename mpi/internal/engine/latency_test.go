package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// loop is a provider that costs next to nothing: a Write is a copy into memory of this process. With it a
// benchmark shows what the engine and the protocols above the verbs cost. It has Writes alone, and nothing
// that fails.
type loop struct {
	transport.Device
	n   *loopNet
	ep  *loopEnd
	qps transport.QPN
}

type loopNet struct {
	mu      sync.Mutex
	regions map[transport.Key]*loopMR
	ends    map[string]*loopEnd
	last    transport.Key
	rights  transport.Access // that the last Alloc was asked for
}

func loopDevices(n int) []transport.Device {
	net := &loopNet{regions: map[transport.Key]*loopMR{}, ends: map[string]*loopEnd{}}
	devices := make([]transport.Device, n)
	for i := range devices {
		devices[i] = &loop{n: net}
	}
	return devices
}

func (d *loop) Query() transport.DeviceAttr {
	return transport.DeviceAttr{Provider: "loop", MaxSGE: 4, MaxMessage: 1 << 30, MaxQPDepth: 1 << 10,
		MaxPrivate: 1 << 10, MaxPolledQPs: 16, TailLast: true, InlineWrites: true, PeerMapped: true}
}
func (d *loop) AllocPD() (transport.PD, error) { return &loopPD{n: d.n}, nil }
func (d *loop) CreateCQ(int, transport.HandlerID) (transport.CQ, error) {
	return &loopCQ{woken: make(chan struct{}, 1)}, nil
}
func (d *loop) Close() error { return nil }

func (d *loop) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	d.ep = &loopEnd{d: d, rank: id.Rank, acceptor: a}
	d.n.ends[d.ep.Addr()] = d.ep
	return d.ep, nil
}

type loopEnd struct {
	transport.Endpoint
	d        *loop
	rank     uint32
	acceptor transport.Acceptor
}

func (e *loopEnd) Addr() string        { return strconv.Itoa(int(e.rank)) }
func (e *loopEnd) Close() error        { return nil }
func (e *loopEnd) Reaches(string) bool { return true }
func (e *loopEnd) Connect(_ context.Context, rank uint32, addr string) error {
	peer := e.d.n.ends[addr]
	ours, sent, err := e.acceptor.Prepare(rank)
	theirs, got, err2 := peer.acceptor.Prepare(e.rank)
	if err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	e.d.qps++
	peer.d.qps++
	e.acceptor.Connected(rank, &loopQP{n: e.d.n, num: e.d.qps, conf: ours}, got)
	peer.acceptor.Connected(e.rank, &loopQP{n: e.d.n, num: peer.d.qps, conf: theirs}, sent)
	return nil
}

type loopPD struct {
	transport.PD
	n *loopNet
}

func (*loopPD) DeviceAttr() transport.DeviceAttr { return (*loop)(nil).Query() }

type loopMR struct {
	transport.MR
	n     *loopNet
	key   transport.Key
	bytes []byte
}

func (p *loopPD) Alloc(n int, access transport.Access) (transport.MR, error) {
	p.n.mu.Lock()
	defer p.n.mu.Unlock()
	p.n.rights = access
	p.n.last++
	m := &loopMR{n: p.n, key: p.n.last, bytes: make([]byte, n+4096)}
	m.bytes = m.bytes[-uintptr(unsafe.Pointer(&m.bytes[0]))&4095:][:n]
	p.n.regions[m.key] = m
	return m, nil
}
func (m *loopMR) Bytes() []byte      { return m.bytes }
func (m *loopMR) Key() transport.Key { return m.key }
func (m *loopMR) Deregister() error  { return nil }
func (m *loopMR) Detach() error      { return nil }

type loopQP struct {
	transport.QP
	n    *loopNet
	num  transport.QPN
	conf transport.QPConfig
	to   *loopMR

	posts []transport.Flags // of each PostSend, once Place is refused
	plain bool              // Place is
}

func (q *loopQP) Num() transport.QPN               { return q.num }
func (q *loopQP) PostRecv(*transport.RecvWR) error { return nil }
func (q *loopQP) Flush()                           {}
func (q *loopQP) Close()                           {}
func (q *loopQP) Abort(error)                      {}
func (q *loopQP) Release()                         {}
func (q *loopQP) Err() error                       { return nil }
func (q *loopQP) State() transport.State           { return transport.StateClosed }
func (q *loopQP) PostSend(wr *transport.SendWR) error {
	if wr.Op != transport.OpWrite {
		panic(fmt.Sprint("a loop has no ", wr.Op))
	}
	if q.plain {
		q.posts = append(q.posts, wr.Flags)
	}
	s, l := &wr.Remote[0], &wr.Local[0]
	from := l.MR.(*loopMR).bytes[l.Offset:][:l.Length]
	to := q.place(s)
	last := l.Length - 8
	copy(to[:last], from)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&to[last])), binary.NativeEndian.Uint64(from[last:]))
	return nil
}

// place is where a Write goes.
func (q *loopQP) place(s *transport.Segment) []byte {
	if q.to == nil || q.to.key != s.Key {
		q.n.mu.Lock()
		q.to = q.n.regions[s.Key]
		q.n.mu.Unlock()
	}
	return q.to.bytes[s.Offset:][:s.Length]
}

func (q *loopQP) PrefetchAddr(uint64) uintptr { return 0 }

func (q *loopQP) WriteInline(s *transport.Segment, head, payload []byte, tail uint64) bool {
	if q.plain {
		return false
	}
	to := q.place(s)
	wordcopy.Copy(to, head)
	copy(to[len(head):], payload)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&to[len(to)-wordcopy.Size])), wordcopy.LittleEndian(tail))
	return true
}

type loopCQ struct {
	woken chan struct{}
}

func (c *loopCQ) Poll([]transport.WC) int              { return 0 }
func (c *loopCQ) Placed([]transport.QPN) int           { return 0 }
func (c *loopCQ) Descriptor() int                      { return -1 }
func (c *loopCQ) EnterWait() (bool, error)             { return false, nil }
func (c *loopCQ) LeaveWait()                           {}
func (c *loopCQ) RequestNotify(transport.Notify) error { return nil }
func (c *loopCQ) Arm()                                 {}
func (c *loopCQ) Tick(time.Time)                       {}
func (c *loopCQ) Close() error                         { return nil }
func (c *loopCQ) Wait(time.Duration) error {
	select {
	case <-c.woken:
	case <-time.After(10 * time.Microsecond): // nothing wakes the sleeper
	}
	return nil
}
func (c *loopCQ) Wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// receive is what package mpi makes of a blocking receive.
func receive(e *Engine, buf []byte, src int) {
	var st Status
	if err := e.Recvs.Recv(0, buf, src, 1, 1, &st); err != nil {
		panic(err)
	}
}

func pin(core int) {
	runtime.LockOSThread()
	_ = sys.SetAffinity([]int{core})
}

func loopWorld(t testing.TB) []*Engine {
	devices := loopDevices(2)
	engines := make([]*Engine, 2)
	for i, d := range devices {
		var err error
		engines[i], err = newEngine(Config{Fabrics: []Fabric{{Device: d}},
			Identity: transport.Identity{Rank: uint32(i), Size: 2},
			SpinTime: time.Second, Lookup: func(rank uint32, _ string) (string,
				error) {
				return strconv.Itoa(int(rank)), nil
			}})
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, e := range engines {
			require.NoError(t, e.hub.Destroy(ErrFinalized))
		}
	})
	return engines
}

// What a message of 8 bytes costs from Send to Recv and back, half of it.
func BenchmarkLoopLatency(b *testing.B) {
	w := loopWorld(b)
	n := b.N + 1000
	done := make(chan struct{})
	go func() {
		defer close(done)
		pin(1)
		buf := make([]byte, 8)
		for range n {
			receive(w[1], buf, 0)
			w[1].Sends.Send(0, buf, 0, 1)
		}
	}()
	pin(0)
	buf := make([]byte, 8)
	for i := range n {
		if i == 1000 {
			b.ResetTimer()
		}
		w[0].Sends.Send(0, buf, 1, 1)
		receive(w[0], buf, 1)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/way")
	<-done
}

// What the processor does for a message of 8 bytes, both sides together.
func BenchmarkLoopMessage(b *testing.B) {
	w := loopWorld(b)
	buf := make([]byte, 8)
	w[0].Sends.Send(0, buf, 1, 1)
	receive(w[1], buf, 0)
	b.ReportAllocs()
	for b.Loop() {
		w[0].Sends.Send(0, buf, 1, 1)
		receive(w[1], buf, 0)
		w[1].Sends.Send(0, buf, 0, 1) // the credit comes back with the answer
		receive(w[0], buf, 1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/message")
}

// The least that one way can take: a flag that is seen by the other core.
func BenchmarkFlag(b *testing.B) {
	var flags [32]uint64
	n := uint64(b.N)
	go func() {
		pin(1)
		for i := uint64(1); i <= n; i++ {
			for atomic.LoadUint64(&flags[0]) != i {
			}
			atomic.StoreUint64(&flags[16], i)
		}
	}()
	pin(0)
	for i := uint64(1); i <= n; i++ {
		atomic.StoreUint64(&flags[0], i)
		for atomic.LoadUint64(&flags[16]) != i {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/way")
}

// What the processor does for a message of a window of 64, both sides together.
func BenchmarkLoopWindow(b *testing.B) {
	w := loopWorld(b)
	buf := make([]byte, 8)
	w[0].Sends.Send(0, buf, 1, 1)
	receive(w[1], buf, 0)
	w[1].Sends.Send(0, buf, 0, 1)
	receive(w[0], buf, 1)
	var sends, recvs [64]Request
	done := func(e *Engine, rs *[64]Request) {
		for i := 0; i < len(rs); {
			n, err := e.Requests.Collect(rs[i:], nil)
			if err != nil {
				panic(err)
			}
			if i += n; i < len(rs) {
				for _, e := range w {
					e.mu.Lock()
					e.progress.poll()
					e.mu.Unlock()
				}
			}
		}
	}
	for b.Loop() {
		for i := range recvs {
			recvs[i], _ = w[1].Recvs.Irecv(0, buf, 0, 1, 1)
		}
		for i := range sends {
			sends[i], _ = w[0].Sends.Isend(0, buf, 1, 1)
		}
		done(w[0], &sends)
		done(w[1], &recvs)
		w[1].Sends.Send(0, buf, 0, 1)
		receive(w[0], buf, 1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/message")
}

// What a message of 1 KiB costs one way without a trace and with one, by turns of a thousand; the median of
// each.
func BenchmarkLoopTraced(b *testing.B) {
	const turn, size = 1000, 1 << 10
	w := loopWorld(b)
	hooks := [2]*Hook{}
	for i := range hooks {
		buffer := trace.NewBuffer(16<<20, Epoch)
		if sys.SteadyTicks() {
			buffer.UseTicks()
		}
		hooks[i] = &Hook{Trace: buffer}
	}
	// The hook of a rank changes while it has no call.
	hook := func(rank, i int) {
		if i%turn == 0 {
			w[rank].hook = nil
			if i/turn%2 == 1 {
				w[rank].hook = hooks[rank]
			}
		}
	}
	n := max(b.N/(2*turn)+1, 4) * 2 * turn
	done := make(chan struct{})
	go func() {
		defer close(done)
		pin(1)
		buf := make([]byte, size)
		for i := range n {
			hook(1, i)
			receive(w[1], buf, 0)
			w[1].Sends.Send(0, buf, 0, 1)
		}
	}()
	pin(0)
	buf := make([]byte, size)
	var took [2][]float64
	began := time.Now()
	for i := range n {
		hook(0, i)
		w[0].Sends.Send(0, buf, 1, 1)
		receive(w[0], buf, 1)
		if i%turn == turn-1 {
			now := time.Now()
			took[i/turn%2] = append(took[i/turn%2], float64(now.Sub(began))/(2*turn))
			began = now
		}
	}
	<-done
	for i, name := range []string{"ns/way", "ns/traced-way"} {
		slices.Sort(took[i])
		b.ReportMetric(took[i][len(took[i])/2], name)
	}
}
