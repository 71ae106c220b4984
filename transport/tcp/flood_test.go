package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/tcp/internal/admission"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// turnedAway keeps whom a host has refused.
type turnedAway struct {
	sync.Mutex
	from  map[string]int // by address
	busy  int            // of them: for somebody else
	total int
}

// counts takes a host's refusals until the context ends.
func (h *host) counts(ctx context.Context, wg *sync.WaitGroup) *turnedAway {
	c := &turnedAway{from: map[string]int{}}
	wg.Go(func() {
		for {
			select {
			case r := <-h.refused:
				c.Lock()
				c.from[r.from]++
				c.total++
				if strings.Contains(r.err.Error(), "others came when") {
					c.busy++
				}
				c.Unlock()
			case <-ctx.Done():
				return
			}
		}
	})
	return c
}

func (c *turnedAway) counted() (total, busy int) {
	c.Lock()
	defer c.Unlock()
	return c.total, c.busy
}

// call opens a connection to the host that ends with the context.
func (h *host) call(ctx context.Context) (*raw, func(), error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(h.ep.Addr(), "tcp:"))
	if err != nil {
		return nil, nil, err
	}
	p := testParties()
	p.Initiator, p.Responder = 1, 0
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &raw{Conn: conn, Parties: p}, func() { stop(); conn.Close() }, nil
}

// A genuine rank connects while many more unauthenticated callers than there are places hold on, and come back whenever
// they are cut: silent ones, and ones that know the job's name and send a Hello, all of them from the genuine
// rank's own address.
func TestUnauthenticated_CrowdKeepsNobodyOut(t *testing.T) {
	const callers = 500
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		away := h.counts(ctx, &wg)
		for i := range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					r, hangUp, err := h.call(ctx)
					if err != nil {
						continue
					}
					hello := r.AppendHello(nil)
					r.Write(hello[:[]int{0, 5, len(hello) - 1, len(hello)}[i%4]])
					io.Copy(io.Discard, r.Conn)
					hangUp()
				}
			})
		}
		e := h.dev.end
		full := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.admission.Pending) == admission.MaxConns
		}
		require.Eventually(t, full, patience, time.Millisecond)
		rounds := testlength.Of(3, 1)
		for round := range rounds {
			for rank := uint32(1); rank < 4; rank++ {
				genuine := newHostOfRank(t, Options{}, rank)
				late, stop := context.WithTimeout(ctx, patience)
				require.NoError(t, genuine.ep.Connect(late, 0, h.ep.Addr()), "round %d", round)
				stop()
				m := h.nextMade()
				require.Equal(t, rank, m.rank)
				g := genuine.nextMade()
				g.qp.Release()
				h.until("the end", func() bool { return m.qp.State() == transport.StateError })
				m.qp.Release()
			}
			_, busy := away.counted()
			require.Eventually(t, func() bool { _, n := away.counted(); return n > busy }, patience,
				time.Millisecond,
				"unauthenticated callers go for newcomers")
		}
	})
}

// recorder keeps what is written, and ends what is read.
type recorder struct {
	net.Conn
	said []byte
}

func (r *recorder) Write(b []byte) (int, error)      { r.said = append(r.said, b...); return len(b), nil }
func (r *recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) Close() error                     { return nil }

// clientHello is the first message of TLS to a host of a name.
func clientHello(name string) []byte {
	var r recorder
	tls.Client(&r, &tls.Config{ServerName: name, InsecureSkipVerify: true,
		MinVersion: tls.VersionTLS13}).Handshake()
	return r.said
}

// Genuine ranks connect over TLS while many more unauthenticated callers than there are places begin TLS, again and again,
// and hold on: with a ClientHello that names nobody, another job, or, since the job's name is no secret, this
// rank; or with a part of one.
func TestUnauthenticated_FloodOfClientHellosKeepsNobodyOut(t *testing.T) {
	const callers = 300
	leaksNone(t, func(t *testing.T) {
		h := newHost(t, Options{TLS: true})
		own := clientHello(h.dev.end.local.Certificates.Name(0))
		hellos := [][]byte{clientHello("nobody"), clientHello("0.0123456789abcdef0123456789abcdef.weft"),
			own[:len(own)-1], nil}
		if !raced {
			hellos = append(hellos, own)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		away := h.counts(ctx, &wg)
		for i := range callers {
			wg.Go(func() {
				for ctx.Err() == nil {
					r, hangUp, err := h.call(ctx)
					if err != nil {
						continue
					}
					r.Write(hellos[i%len(hellos)])
					io.Copy(io.Discard, r.Conn)
					hangUp()
				}
			})
		}
		require.Eventually(t, func() bool { n, _ := away.counted(); return n > callers }, patience,
			time.Millisecond)
		rounds := testlength.Of(3, 1)
		for round := range rounds {
			for rank := uint32(1); rank < 4; rank++ {
				genuine := newHostOfRank(t, Options{TLS: true}, rank)
				late, stop := context.WithTimeout(ctx, patience)
				require.NoError(t, genuine.ep.Connect(late, 0, h.ep.Addr()), "round %d", round)
				stop()
				m := h.nextMade()
				require.Equal(t, rank, m.rank)
				g := genuine.nextMade()
				g.qp.Release()
				h.until("the end", func() bool { return m.qp.State() == transport.StateError })
				m.qp.Release()
			}
		}
	})
}

// messageWords gives the bytes of a message of the traffic.
func messageWords(b []byte, message int) {
	stretch(b, 0, uint64(message))
}

// messages runs messages to and fro between two hosts, each driven by a goroutine of its own, until the
// context ends. It counts those that have come back whole.
func messages(ctx context.Context, wg *sync.WaitGroup, a, b *host, qa,
	qb transport.QP) (count *atomic.Int64, failed func() error) {
	const size = 6 << 10
	count = atomic.NewInt64(0)
	var failure atomic.Error
	drive := func(h *host, q transport.QP, begins bool) error {
		mr, err := h.pd.Alloc(2*size, transport.LocalWrite)
		if err != nil {
			return err
		}
		out, in := mr.Bytes()[:size], mr.Bytes()[size:]
		want := make([]byte, size)
		wcs := make([]transport.WC, 4)
		say := func(message int) error {
			messageWords(out, message)
			return q.PostSend(&transport.SendWR{Op: transport.OpSend,
				Local: []transport.SGE{{MR: mr, Length: size}}})
		}
		room := func() error {
			return q.PostRecv(&transport.RecvWR{Local: []transport.SGE{{MR: mr, Offset: size, Length: size}}})
		}
		if err := room(); err != nil {
			return err
		}
		if begins {
			if err := say(0); err != nil {
				return err
			}
		}
		for message := 0; ctx.Err() == nil; {
			n := h.cq.Poll(wcs)
			if n == 0 {
				h.cq.Arm()
				if h.cq.Poll(nil); h.cq.Wait(10*time.Millisecond) != nil {
					return errors.New("waiting failed")
				}
			}
			for _, wc := range wcs[:n] {
				if wc.Err != nil {
					return wc.Err
				}
				if wc.Op != transport.OpRecv {
					continue
				}
				if messageWords(want, message); string(in) != string(want) {
					return fmt.Errorf("message %d is another", message)
				}
				if begins {
					message++
					count.Inc()
				}
				if err := errors.Join(room(), say(message)); err != nil {
					return err
				}
				if !begins {
					message++
				}
			}
		}
		return nil
	}
	for i, h := range []*host{a, b} {
		wg.Go(func() {
			if err := drive(h, []transport.QP{qa, qb}[i], i == 0); err != nil {
				failure.CompareAndSwap(nil, err)
			}
		})
	}
	return count, failure.Load
}

// usage is what a process holds.
type usage struct{ heap, goroutines, descriptors int }

func used(t *testing.T) usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{int(m.HeapAlloc), runtime.NumGoroutine(), descriptors(t)}
}

// awaitUsage waits until the process has no more goroutines than before, as some whose work is done may be about
// to end. Then it has no more descriptors, and at most 4 MiB more of heap.
func awaitUsage(t *testing.T, before usage) (after usage) {
	t.Helper()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before.goroutines; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%+v before, %+v after", before, used(t))
	}
	runtime.GC()
	after = used(t)
	require.Less(t, after.heap, before.heap+4<<20)
	require.LessOrEqual(t, after.goroutines, before.goroutines)
	require.LessOrEqual(t, after.descriptors, before.descriptors)
	return after
}

// Ten thousand unauthenticated callers of every kind call while two ranks exchange messages: the messages go on, every byte
// of them right; each caller is refused and named; what the process holds is bounded meanwhile and the same
// afterwards.
func TestUnauthenticated_TenThousandDuringTraffic(t *testing.T) {
	const atOnce = 256
	callers := testlength.Of(10_000, 2500)
	kinds := []func(r *raw){
		func(r *raw) { r.Write([]byte("\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe\xfe")); io.Copy(io.Discard, r.Conn) },
		func(r *raw) { r.Write(r.AppendHello(nil)[:40]); io.Copy(io.Discard, r.Conn) },
		func(r *raw) { io.Copy(io.Discard, r.Conn) },
		func(r *raw) {
			r.Write([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
			io.Copy(io.Discard, r.Conn)
		},
		func(r *raw) { r.Write([]byte("GET / HTTP/1.1\r\nHost: weft\r\n\r\n")); io.Copy(io.Discard, r.Conn) },
		func(r *raw) { r.Conn.(*net.TCPConn).SetLinger(0) },
		func(r *raw) {
			r.Write(r.AppendHello(nil))
			if body, err := r.expect(message.Challenge); err == nil &&
				r.TakeChallenge(body, &testSecret) == nil {
				r.Write(r.AppendRequest(r.AppendProof(nil, &[32]byte{7}), &[32]byte{7}, testParameters,
					make([]byte, message.MaxPrivate)))
			}
			io.Copy(io.Discard, r.Conn)
		},
		func(r *raw) {
			r.Job = handshake.JobHash("another")
			r.Write(r.AppendHello(nil))
			io.Copy(io.Discard, r.Conn)
		},
	}
	leaksNone(t, func(t *testing.T) {
		// Shorter than the default, for the last who are silent make each tenth as long as their time is.
		a, b := newHost(t, Options{AuthTimeout: 200 * time.Millisecond}), newHostOfRank(t, Options{}, 1)
		require.NoError(t, b.ep.Connect(t.Context(), 0, a.ep.Addr()))
		qa, qb := a.nextMade().qp, b.nextMade().qp
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		away := a.counts(ctx, &wg)
		count, failed := messages(ctx, &wg, a, b, qa, qb)

		called := map[string]int{}
		var mu sync.Mutex
		call := func(n int) {
			var callers sync.WaitGroup
			var next atomic.Int64
			for range atOnce {
				callers.Go(func() {
					for i := int(next.Inc()) - 1; i < n; i = int(next.Inc()) - 1 {
						r, hangUp, err := a.call(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						called[r.LocalAddr().String()]++
						mu.Unlock()
						kinds[i%len(kinds)](r)
						hangUp()
					}
				})
			}
			stop := make(chan struct{})
			var peak usage
			var watch sync.WaitGroup
			watch.Go(func() {
				for {
					now := used(t)
					peak = usage{max(peak.heap, now.heap), max(peak.goroutines, now.goroutines),
						max(peak.descriptors, now.descriptors)}
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
			callers.Wait()
			close(stop)
			watch.Wait()
			require.Less(t, peak.heap, 64<<20)
			require.Less(t, peak.goroutines, 3*atOnce+admission.MaxConns,
				"each caller has one, and one more in its host")
			require.Less(t, peak.descriptors, 2*atOnce+admission.MaxConns+100)
			require.Eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				away.Lock()
				defer away.Unlock()
				return maps.Equal(called, away.from)
			}, patience, time.Millisecond,
				"everybody who called is refused and named by his address, and nobody else")
		}
		call(callers / 10) // whatever is made once is made now
		runtime.GC()
		before := used(t)
		for range 9 {
			at := count.Load()
			call(callers / 10)
			require.Eventually(t, func() bool { return failed() != nil || count.Load() > at+10 }, patience,
				time.Millisecond, "messages go on")
			require.NoError(t, failed())
		}
		total, _ := away.counted()
		require.Equal(t, callers, total)
		after := awaitUsage(t, before)
		t.Logf("%d messages; %+v before, %+v after", count.Load(), before, after)
		require.Equal(t, before.descriptors, after.descriptors)
	})
}
