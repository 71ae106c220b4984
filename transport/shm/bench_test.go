package shm

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// end is one end of a pair of connected devices of this process.
type end struct {
	dev *Device
	pd  transport.PD
	cq  transport.CQ
	qp  *qp

	wc   [1]transport.WC
	made chan transport.QP
	into transport.MR // for the other to send to
}

func (e *end) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SendWR: 64, RecvWR: 256, Reads: 8}, nil,
		nil
}
func (e *end) Connected(_ uint32, q transport.QP, _ []byte) { e.made <- q }
func (e *end) Refused(string, error)                        {}

// couple connects two devices.
func couple(t testing.TB, o Options, change ...func(*Device)) (a, b *end) {
	t.Helper()
	var ends [2]*end
	var list [2]transport.Endpoint
	for i := range ends {
		d, err := New(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		for _, c := range change {
			c(d)
		}
		e := &end{dev: d, made: make(chan transport.QP, 1)}
		e.pd, err = d.AllocPD()
		require.NoError(t, err)
		e.cq, err = d.CreateCQ(1024, 0)
		require.NoError(t, err)
		list[i], err = d.Listen(transport.Identity{Job: "couple", Rank: uint32(i), Size: 2}, e)
		require.NoError(t, err)
		ends[i] = e
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	require.NoError(t, list[0].Connect(ctx, 1, list[1].Addr()))
	for _, e := range ends {
		e.qp = (<-e.made).(*qp)
		e.attached(1)
	}
	return ends[0], ends[1]
}

// attached polls until so many queue pairs are driven: they are handed over after Connected.
func (e *end) attached(n int) {
	for len(e.cq.(*cq).qps) < n {
		e.cq.Poll(nil)
		runtime.Gosched()
	}
}

func (e *end) alloc(t testing.TB, n int) transport.MR {
	t.Helper()
	m, err := e.pd.Alloc(n, transport.RemoteRead|transport.RemoteWrite)
	require.NoError(t, err)
	return m
}

func writeOf(from, to transport.MR, n int) *transport.SendWR {
	return &transport.SendWR{Op: transport.OpWrite, Local: []transport.SGE{{MR: from, Length: n}},
		Remote: []transport.Segment{{Key: to.Key(), Length: uint64(n)}}}
}

// An unsignalled Write of 64 bytes into memory of PD.Alloc.
func BenchmarkPostSendWrite64(b *testing.B) {
	x, y := couple(b, Options{})
	wr := writeOf(x.alloc(b, 64), y.alloc(b, 64), 64)
	require.NoError(b, x.qp.PostSend(wr))
	b.ReportAllocs()
	for b.Loop() {
		if err := x.qp.PostSend(wr); err != nil {
			b.Fatal(err)
		}
	}
}

// A pass that finds nothing.
func BenchmarkPollOfNothing(b *testing.B) {
	x, _ := couple(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		x.cq.Poll(nil)
	}
}

// Writes of 64 bytes to and fro between two threads, each on a processor of its own, that look at the memory
// itself: half a round.
func BenchmarkPingPongWrite64(b *testing.B) {
	cores, err := sys.Affinity()
	require.NoError(b, err)
	if len(cores) < 2 {
		b.Skip("two processors are needed")
	}
	x, y := couple(b, Options{})
	mx, my := x.alloc(b, 64), y.alloc(b, 64)
	rounds := uint64(b.N)
	side := func(e *end, core int, to, from transport.MR, first bool) {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := sys.SetAffinity([]int{core}); err != nil {
			b.Error(err)
		}
		src := e.alloc(b, 64)
		wr := writeOf(src, to, 64)
		head := (*uint64)(unsafe.Pointer(&src.Bytes()[0]))
		tail := (*uint64)(unsafe.Pointer(&src.Bytes()[56]))
		flag := (*uint64)(unsafe.Pointer(&from.Bytes()[0]))
		last := (*uint64)(unsafe.Pointer(&from.Bytes()[56]))
		for i := uint64(1); i <= rounds; i++ {
			if !first {
				for atomic.LoadUint64(flag) != i {
				}
				for atomic.LoadUint64(last) != i {
				}
			}
			*head, *tail = i, i
			if err := e.qp.PostSend(wr); err != nil {
				b.Error(err)
				return
			}
			if first {
				for atomic.LoadUint64(flag) != i {
				}
				for atomic.LoadUint64(last) != i {
				}
			}
		}
	}
	b.ResetTimer()
	var done sync.WaitGroup
	done.Go(func() { side(x, cores[0], my, mx, true) })
	done.Go(func() { side(y, cores[1], mx, my, false) })
	done.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/way")
}

func benchmarkRead(b *testing.B, o Options, registered bool) {
	const n = 64 << 10
	x, y := couple(b, o)
	dst := x.alloc(b, n)
	src := y.alloc(b, n)
	if registered {
		var err error
		src, err = y.pd.Register(make([]byte, n), transport.RemoteRead)
		require.NoError(b, err)
	}
	wr := &transport.SendWR{Op: transport.OpRead, Flags: transport.FlagSignaled,
		Local:  []transport.SGE{{MR: dst, Length: n}},
		Remote: []transport.Segment{{Key: src.Key(), Length: n}}}
	var wc [1]transport.WC
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.qp.PostSend(wr); err != nil {
			b.Fatal(err)
		}
		for x.cq.Poll(wc[:]) == 0 {
			y.cq.Poll(nil)
		}
		if wc[0].Status != transport.StatusSuccess {
			b.Fatal(wc[0].Err)
		}
	}
}

func BenchmarkReadAllocated64K(b *testing.B)  { benchmarkRead(b, Options{}, false) }
func BenchmarkReadRegistered64K(b *testing.B) { benchmarkRead(b, Options{}, true) }
func BenchmarkReadThroughRing64K(b *testing.B) {
	benchmarkRead(b, Options{NoCMA: true}, true)
}
