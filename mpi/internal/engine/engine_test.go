package engine

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/sim"
	"github.com/weft-mpi/weft/transport/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// often is how often a test repeats what it does at random: n times at its whole length, else a third of that.
func often(n int) int { return testlength.Of(n, (n+2)/3) }

// fabrics are the providers that every test of the engine runs on, each with Reads and without. The simulated
// one moves bytes in small steps, so it gets fewer of them.
var fabrics = map[string]func(t *testing.T, seed uint64, n int) []transport.Device{
	"sim": func(_ *testing.T, seed uint64, n int) []transport.Device { return simDevices(seed, n) },
	"tcp": func(t *testing.T, _ uint64, n int) []transport.Device { return tcpDevices(t, n) },
	"sim-granted": func(_ *testing.T, seed uint64,
		n int) []transport.Device {
		return withoutReads(simDevices(seed, n))
	},
	"tcp-granted": func(t *testing.T, _ uint64,
		n int) []transport.Device {
		return withoutReads(tcpDevices(t, n))
	},
}

func simDevices(seed uint64, n int) []transport.Device {
	network := sim.NewNetwork(seed)
	devices := make([]transport.Device, n)
	for i := range devices {
		devices[i] = network.Device()
	}
	return devices
}

func tcpDevices(t testing.TB, n int) []transport.Device {
	devices := make([]transport.Device, n)
	for i := range devices {
		d, err := tcp.New(tcp.Options{Host: "127.0.0.1"})
		require.NoError(t, err)
		devices[i] = d
	}
	return devices
}

// noReads is a device whose queue pairs have no Reads, so that large messages are written where their
// receivers grant it.
type noReads struct{ transport.Device }

func (d noReads) Query() transport.DeviceAttr {
	a := d.Device.Query()
	a.MaxReads = 0
	return a
}

func withoutReads(devices []transport.Device) []transport.Device {
	for i, d := range devices {
		devices[i] = noReads{d}
	}
	return devices
}

// world makes n engines that know each other, in this process.
func world(t testing.TB, devices []transport.Device) []*Engine {
	t.Helper()
	return worldOf(t, devices, Config{})
}

// worldOf is world with engines of some configuration.
func worldOf(t testing.TB, devices []transport.Device, conf Config) []*Engine {
	t.Helper()
	engines := make([]*Engine, len(devices))
	lookup := func(rank uint32, provider string) (string, error) { return engines[rank].hub.Addr(provider), nil }
	for i, d := range devices {
		id := transport.Identity{Job: "test", Rank: uint32(i), Size: uint32(len(devices))}
		copy(id.Secret[:], "a secret that the test's ranks share")
		conf.Fabrics, conf.Identity, conf.Lookup, conf.ConnectTimeout = []Fabric{{Device: d}}, id, lookup,
			time.Minute
		conf.Together = true
		conf.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
		e, err := newEngine(conf)
		require.NoError(t, err)
		engines[i] = e
	}
	t.Cleanup(func() {
		for _, e := range engines {
			require.NoError(t, e.hub.Destroy(ErrFinalized))
		}
	})
	return engines
}

// newEngine makes a rank, and returns its first endpoint.
func newEngine(conf Config) (*Engine, error) {
	h, err := NewHub(conf)
	if err != nil {
		return nil, err
	}
	return h.first(), nil
}

func simulated(w []*Engine) bool { return w[0].fabrics[0].Device.Query().Provider == "sim" }

// onEach runs a test on a world of every fabric.
func onEach(t *testing.T, n int, test func(t *testing.T, w []*Engine)) {
	for name, make := range fabrics {
		t.Run(name, func(t *testing.T) { test(t, world(t, make(t, 1, n))) })
	}
}

// ranks runs body once for each engine, at the same time, and reports the errors. Who is done goes on making
// progress until all are, as ranks do in Finalize.
func ranks(t *testing.T, w []*Engine, body func(e *Engine) error) {
	t.Helper()
	var bodies, wg sync.WaitGroup
	errs := make([]error, len(w))
	bodies.Add(len(w))
	all := make(chan struct{})
	for i, e := range w {
		wg.Go(func() {
			func() {
				defer bodies.Done()
				// should a requirement end the goroutine, the other ranks do not wait for it
				errs[i] = ErrAborted
				defer func() {
					if errs[i] == ErrAborted {
						for _, e := range w {
							e.hub.Fail(ErrAborted)
						}
					}
				}()
				errs[i] = body(e)
			}()
			e.driveUntil(all, func() bool { return e.stopped != nil })
		})
	}
	go func() { bodies.Wait(); close(all) }()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		for _, e := range w {
			e.hub.Fail(ErrAborted)
		}
		<-done
		t.Error("the ranks hung")
	}
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// pattern fills b with bytes that depend on who sent it, which message it is, and the offset.
func pattern(b []byte, source, sequence int) {
	x := uint64(source)<<48 ^ uint64(sequence)<<20 ^ 0x9e3779b97f4a7c15
	for i := range b {
		b[i] = byte((x + uint64(i)*0xbf58476d1ce4e5b9) >> 29)
	}
}

func checkPattern(b []byte, source, sequence int) error {
	want := make([]byte, len(b))
	pattern(want, source, sequence)
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("byte %d of %d of message %d from rank %d is %#x, not %#x", i, len(b),
				sequence, source, b[i], want[i])
		}
	}
	return nil
}

const world0 = 0 // the context that the tests talk in

func TestPingPongOfEverySize(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		largest := 4 << 20
		if simulated(w) {
			largest = 50_000
		}
		ranks(t, w, func(e *Engine) error {
			seq := 0
			for n := 0; n <= largest; n = n*3 + 1 {
				seq++
				buf := make([]byte, n)
				if e.Rank() == 0 {
					pattern(buf, 0, seq)
					if err := e.Sends.Send(world0, buf, 1, 5); err != nil {
						return err
					}
				}
				clear(buf)
				st, err := e.recv(world0, buf, 1-e.Rank(), 5, 1)
				if err != nil {
					return err
				}
				if st.Bytes != n || st.Source != 1-e.Rank() || st.Tag != 5 {
					return fmt.Errorf("status %+v for %d bytes", st, n)
				}
				if err := checkPattern(buf, 0, seq); err != nil {
					return err
				}
				if e.Rank() == 1 {
					if err := e.Sends.Send(world0, buf, 0, 5); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

func TestTruncation(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		ranks(t, w, func(e *Engine) error {
			for _, n := range []int{100, 100_000} {
				buf := make([]byte, n)
				if e.Rank() == 0 {
					pattern(buf, 0, n)
					if err := e.Sends.Send(world0, buf, 1, 1); err != nil {
						return fmt.Errorf("the sender is not to blame: %w", err)
					}
					continue
				}
				st, err := e.recv(world0, buf[:60], 0, 1, 1)
				if err := checkPattern(buf[:60], 0, n); err != nil {
					return err
				}
				for i, b := range buf[60:] {
					if b != 0 {
						return fmt.Errorf("byte %d after the buffer was written", i)
					}
				}
				require.ErrorIs(t, err, ErrTruncate)
				require.Equal(t, 60, st.Bytes)
			}
			return nil
		})
	})
}

func TestSelf(t *testing.T) {
	onEach(t, 1, func(t *testing.T, w []*Engine) {
		e := w[0]
		for seq, n := range []int{0, 8, 5000} {
			out, in := make([]byte, n), make([]byte, n)
			pattern(out, 0, seq)
			// before its receive: small ones are copied, large ones wait
			s, err := e.Sends.Isend(world0, out, 0, seq)
			require.NoError(t, err)
			st, err := e.recv(world0, in, AnySource, AnyTag, 1)
			require.NoError(t, err)
			require.Equal(t, Status{Source: 0, Tag: seq, Bytes: n, Elem: 1}, st)
			require.NoError(t, checkPattern(in, 0, seq))
			_, err = e.Requests.Wait(s)
			require.NoError(t, err)
			_, err = e.Requests.Wait(s)
			require.ErrorIs(t, err, ErrRequest)
		}
	})
}

// TestPeerLost has one rank vanish while another waits for it in every way there is.
func TestPeerLost(t *testing.T) {
	onEach(t, 3, func(t *testing.T, w []*Engine) {
		ranks(t, w, func(e *Engine) error {
			one := make([]byte, 1)
			if e.Rank() == 2 {
				for r := range 2 { // so that they are connected
					if err := e.Sends.Send(world0, one, r, 0); err != nil {
						return err
					}
				}
				for r := range 2 {
					if _, err := e.recv(world0, one, r, 0, 1); err != nil {
						return err
					}
				}
				return e.hub.Destroy(ErrFinalized) // cut, with no close
			}
			if _, err := e.recv(world0, one, 2, 0, 1); err != nil {
				return err
			}
			pending, err := e.Recvs.Irecv(world0, one, 2, 1, 1)
			if err != nil {
				return err
			}
			if err := e.Sends.Send(world0, one, 2, 0); err != nil {
				return err
			}
			_, err = e.recv(world0, make([]byte, 1), AnySource, 1, 1)
			require.ErrorIs(t, err, ErrProcFailed, "a receive from any source")
			require.ErrorContains(t, err, "rank 2")
			_, err = e.Requests.Wait(pending)
			require.ErrorIs(t, err, ErrProcFailed, "a receive that was posted before")
			_, err = e.recv(world0, one, 2, 1, 1)
			require.ErrorIs(t, err, ErrProcFailed, "a receive that is posted afterwards")
			_, err = e.Probes.Probe(world0, 2, 1, nil)
			require.ErrorIs(t, err, ErrProcFailed, "a probe")
			err = e.Sends.Send(world0, make([]byte, 1<<20), 2, 1)
			require.ErrorIs(t, err, ErrProcFailed, "a send")
			// The two that are left go on.
			if e.Rank() == 0 {
				return e.Sends.Send(world0, one, 1, 9)
			}
			_, err = e.recv(world0, one, 0, 9, 1)
			return err
		})
	})
}

// TestGoroutines has many goroutines of two ranks wait at the same time, so that most of them park.
func TestGoroutines(t *testing.T) {
	const pairs, rounds = 16, 50
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		ranks(t, w, func(e *Engine) error {
			var wg sync.WaitGroup
			errs := make([]error, pairs)
			for tag := range pairs {
				wg.Go(func() {
					errs[tag] = func() error {
						buf := make([]byte, 1000)
						for i := range rounds {
							if e.Rank() == 0 {
								pattern(buf, tag, i)
								if err := e.Sends.Send(world0, buf, 1, tag); err != nil {
									return err
								}
							}
							if _, err := e.recv(world0, buf, 1-e.Rank(), tag, 1); err != nil {
								return err
							}
							if err := checkPattern(buf, tag, i); err != nil {
								return err
							}
							if e.Rank() == 1 {
								if err := e.Sends.Send(world0, buf, 0, tag); err != nil {
									return err
								}
							}
						}
						return nil
					}()
				})
			}
			wg.Wait()
			for _, err := range errs {
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// TestFailWakesEveryWaiter ends the engine under goroutines that wait for what never comes.
func TestFailWakesEveryWaiter(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		e := w[0]
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				_, err := e.recv(world0, make([]byte, 1), 1, i, 1)
				require.ErrorIs(t, err, ErrAborted)
			})
			wg.Go(func() {
				_, err := e.Probes.Probe(world0, 1, i, nil)
				require.ErrorIs(t, err, ErrAborted)
			})
		}
		require.Eventually(t, func() bool { return e.Stats().Sleeps >= 8 }, 2*time.Minute, time.Millisecond)
		e.hub.Fail(ErrAborted)
		wg.Wait()
	})
}

// TestCoalescedSendsGoOutByThemselves: a burst of Isends reaches a peer though its sender makes no further call.
// The simulated network carries nothing that nobody polls for, so this is about sockets.
func TestCoalescedSendsGoOutByThemselves(t *testing.T) {
	w := world(t, fabrics["tcp"](t, 1, 2))
	ranks(t, w, func(e *Engine) error { // connect
		if e.Rank() == 0 {
			return e.Sends.Send(world0, []byte{7}, 1, 0)
		}
		_, err := e.recv(world0, make([]byte, 1), 0, 0, 1)
		return err
	})
	var open []Request
	for range 10 {
		r, err := w[0].Sends.Isend(world0, []byte{7}, 1, 0)
		require.NoError(t, err)
		open = append(open, r)
	}
	for range 10 {
		_, err := w[1].recv(world0, make([]byte, 1), 0, 0, 1)
		require.NoError(t, err)
	}
	for _, r := range open {
		_, err := w[0].Requests.Wait(r)
		require.NoError(t, err)
	}
}

func TestAllocations(t *testing.T) {
	w := world(t, fabrics["tcp"](t, 1, 2))
	var wg sync.WaitGroup
	for _, n := range []int{8, 600, 100_000} {
		wg.Go(func() {
			buf := make([]byte, n)
			for {
				st, err := w[1].recv(world0, buf, 0, n, 1)
				if err != nil || st.Bytes == 0 {
					return
				}
				if err := w[1].Sends.Send(world0, buf, 0, n); err != nil {
					return
				}
			}
		})
		buf := make([]byte, n)
		round := func() {
			require.NoError(t, w[0].Sends.Send(world0, buf, 1, n))
			if _, err := w[0].recv(world0, buf, 1, n, 1); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			round()
		}
		// Both ends are in this process, so both are counted.
		require.Zero(t, testing.AllocsPerRun(500, round), "%d bytes", n)
		require.NoError(t, w[0].Sends.Send(world0, nil, 1, n))
	}
	wg.Wait()
}

// peerOf is a peer of an engine, of which the caller does not have the lock.
func peerOf(e *Engine, rank int) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.peerLocked(rank)
}
