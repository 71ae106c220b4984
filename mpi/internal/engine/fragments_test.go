package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// throughRing makes two engines whose awaited sends all go through the ring, up to the longest.
func throughRing(t testing.TB, conf Config) []*Engine {
	costs := transport.CopyCosts{Call: time.Second, CallKiB: 1, MappedKiB: 1}
	conf.SpinTime = time.Second
	if conf.Channel.Phases == nil {
		conf.Channel.Phases = []int{640, 16448, 65600}
	}
	return worldOf(t, shmDevices(t, 2, shm.Options{CopyCosts: costs}), conf)
}

// TestFragments: messages of every length up to those that go otherwise come as they were sent: in a
// dialogue; both ways at once, where each rank sends before it receives; to a receive that was posted, or has
// another tag, or comes late, or has too little room; and when the receiver has no memory for them.
func TestFragments(t *testing.T) {
	for name, conf := range map[string]Config{
		"":                       {},
		"few unexpected":         {MaxUnexpectedBytes: 20 << 10},
		"slots that do not grow": {Channel: channel.Config{Phases: []int{640}}},
		"small ring kept":        {Channel: channel.Config{KeepSmall: true}},
	} {
		t.Run(name, func(t *testing.T) {
			rounds := often(150)
			w := throughRing(t, conf)
			connected(t, w)
			holds := len(conf.Channel.Phases) != 1 && conf.MaxUnexpectedBytes == 0
			ranks(t, w, func(e *Engine) error {
				peer, dice := 1-e.Rank(), rand.New(rand.NewPCG(1, 2)) // the same at both ranks
				in, out := make([]byte, copycost.MaxMapped+100), make([]byte, copycost.MaxMapped+100)
				for i := range rounds {
					n, how, first := 1+dice.IntN(len(out)), dice.IntN(6), e.Rank() == i%2
					if how == 2 && (n > 60_000 || !holds) {
						how = 0 // the send may wait for its receive
					}
					pattern(out[:n], e.Rank(), i)
					send := func() error { return e.Sends.Send(world0, out[:n], peer, i) }
					recv := func() error {
						if _, err := e.recv(world0, in, peer, i, 1); err != nil {
							return err
						}
						return checkPattern(in[:n], peer, i)
					}
					var err error
					switch {
					case how == 1: // both at once
						sent := make(chan error, 1)
						go func() { sent <- send() }()
						err = errors.Join(recv(), <-sent)
					case how == 2 && first: // unexpected: the peer wants something else first
						err = errors.Join(send(), e.Sends.Send(world0, nil, peer, rounds), recv())
					case how == 2:
						if _, err = e.recv(world0, nil, peer, rounds, 1); err == nil {
							err = errors.Join(recv(), send())
						}
					case how == 3: // posted before
						r, err2 := e.Recvs.Irecv(world0, in, peer, i, 1)
						err = errors.Join(err2, send())
						_, err3 := e.Requests.Wait(r)
						err = errors.Join(err, err3, checkPattern(in[:n], peer, i))
					case how == 4 && first: // too little room
						err = errors.Join(send(), recv())
					case how == 4:
						if _, err = e.recv(world0, in[:n-1], peer, i, 1); !errors.Is(err, ErrTruncate) {
							return fmt.Errorf("no truncation: %w", err)
						}
						err = errors.Join(checkPrefix(in[:n-1], n, peer, i), send())
					case first:
						err = errors.Join(send(), recv())
					default:
						err = errors.Join(recv(), send())
					}
					if err != nil {
						return fmt.Errorf("round %d, %d bytes, %d: %w", i, n, how, err)
					}
				}
				return nil
			})
			if name == "" {
				for _, e := range w {
					require.NotZero(t, e.peers[1-e.Rank()].ch.Phase())
				}
			}
		})
	}
}

// checkPrefix checks the first bytes of a message of n bytes.
func checkPrefix(b []byte, n, source, sequence int) error {
	want := make([]byte, n)
	if pattern(want, source, sequence); string(want[:len(b)]) != string(b) {
		return errors.New("other bytes")
	}
	return nil
}

// grown makes the rings of two engines hold messages in fragments.
func grown(t testing.TB, w []*Engine) {
	t.Helper()
	in, out := make([]byte, copycost.MaxMapped), make([]byte, copycost.MaxMapped)
	for range 20 {
		for k, e := range w {
			done := make(chan error, 1)
			go func() { done <- e.Sends.Send(world0, out, 1-k, 1) }()
			_, err := w[1-k].recv(world0, in, k, 1, 1)
			require.NoError(t, errors.Join(err, <-done))
		}
	}
	for k, e := range w {
		require.Equal(t, 2, e.peers[1-k].ch.Phase())
	}
}

// TestFragments_OfADialogueGoAtOnce: neither end needs a request, or memory.
func TestFragments_OfADialogueGoAtOnce(t *testing.T) {
	w := throughRing(t, Config{})
	connected(t, w)
	grown(t, w)
	const n, rounds = 64 << 10, 100
	allocated := testing.AllocsPerRun(3, func() {
		done := make(chan int)
		go func() {
			b, requests := make([]byte, n), 0
			for range rounds {
				if _, err := w[1].recv(world0, b, 0, 1, 1); err != nil {
					break
				}
				if w[1].Sends.Send(world0, b, 0, 1) != nil {
					break
				}
				requests++
			}
			done <- requests
		}()
		b := make([]byte, n)
		for range rounds {
			require.NoError(t, w[0].Sends.Send(world0, b, 1, 1))
			_, err := w[0].recv(world0, b, 1, 1, 1)
			require.NoError(t, err)
		}
		require.Equal(t, rounds, <-done)
	})
	require.Less(t, allocated, float64(rounds)/2)
	for k, e := range w {
		require.Zero(t, e.fabrics[0].sender.Outstanding(e.peers[1-k].ch))
	}
}

// beginFragments has rank 0 send the beginning of a message of n bytes to rank 1 in fragments.
func beginFragments(t *testing.T, w []*Engine, n, fragments int) {
	t.Helper()
	w[0].mu.Lock()
	defer w[0].mu.Unlock()
	sent, err := w[0].Sends.first.TrySend(w[0].peers[1].ch, envelope{Context: world0, Tag: 1}, n)
	require.True(t, sent && err == nil)
	for range fragments {
		moreFragment(t, w, make([]byte, 1000))
	}
}

func moreFragment(t *testing.T, w []*Engine, b []byte) {
	t.Helper()
	sent, err := eager.TrySendMore(w[0].peers[1].ch, b)
	require.True(t, sent && err == nil)
}

// TestFragments_APeerDiesInTheMiddle of a message that is being received directly: the receive fails, and
// names it.
func TestFragments_APeerDiesInTheMiddle(t *testing.T) {
	w := throughRing(t, Config{})
	connected(t, w)
	grown(t, w)
	beginFragments(t, w, 64<<10, 3)
	time.AfterFunc(10*time.Millisecond, func() { w[0].hub.Fail(transport.ErrPeerLost) })
	_, err := w[1].recv(world0, make([]byte, 64<<10), 0, 1, 1)
	var of *PeerError
	require.ErrorAs(t, err, &of)
	require.Zero(t, of.Rank)
	require.Nil(t, w[1].Recvs.begun)
}

// TestFragments_ASlowSender: the receive goes on with a request, and other goroutines meanwhile.
func TestFragments_ASlowSender(t *testing.T) {
	w := throughRing(t, Config{})
	connected(t, w)
	grown(t, w)
	const n = 10000
	beginFragments(t, w, n, 4)
	in := make([]byte, n)
	done := make(chan error, 1)
	go func() {
		st, err := w[1].recv(world0, in, 0, 1, 8)
		if err == nil && (st.Bytes != n || st.Elem != 8) {
			err = fmt.Errorf("%+v", st)
		}
		done <- err
	}()
	require.Eventually(t, func() bool {
		w[1].mu.Lock()
		defer w[1].mu.Unlock()
		return w[1].peers[0].incoming.r != nil
	}, time.Minute, time.Millisecond)
	w[0].mu.Lock()
	last := make([]byte, n-4000)
	pattern(last, 0, 1)
	moreFragment(t, w, last)
	w[0].mu.Unlock()
	drive(t, w[:1], func() bool { return len(done) > 0 })
	require.NoError(t, <-done)
	require.NoError(t, checkPattern(in[4000:], 0, 1))
}

// TestFragments_OfALiar: what does not belong in the middle of a message ends the peer, and the receive that
// has taken the beginning of the message directly.
func TestFragments_OfALiar(t *testing.T) {
	for name, then := range map[string]func(c *channel.Channel) (bool, error){
		"more than it said": func(c *channel.Channel) (bool, error) { return eager.TrySendMore(c, make([]byte, 7001)) },
		"another message": func(c *channel.Channel) (bool, error) {
			return eager.TrySend(c, envelope{Context: world0, Tag: 1}, []byte("x"), 0)
		},
		"another beginning": func(c *channel.Channel) (bool, error) {
			var f eager.First
			return f.TrySend(c, envelope{Context: world0, Tag: 1}, 100)
		},
		"nothing": func(c *channel.Channel) (bool, error) {
			return c.TrySendControl(channel.More, 0, false, func([]byte) error { return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := throughRing(t, Config{})
			connected(t, w)
			grown(t, w)
			beginFragments(t, w, 10000, 3)
			w[0].mu.Lock()
			sent, err := then(w[0].peers[1].ch)
			w[0].mu.Unlock()
			require.True(t, sent && err == nil)
			_, err = w[1].recv(world0, make([]byte, 10000), 0, 1, 1)
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.Equal(t, peerFailed, w[1].peers[0].state)
		})
	}
	t.Run("an impossible length", func(t *testing.T) {
		w := throughRing(t, Config{})
		connected(t, w)
		w[0].mu.Lock()
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], 1<<63)
		sent, err := w[0].peers[1].ch.TrySend(channel.First, world0|1<<32, b[:], 0)
		w[0].mu.Unlock()
		require.True(t, sent && err == nil)
		_, err = w[1].recv(world0, make([]byte, 100), 0, 1, 1)
		require.ErrorIs(t, err, transport.ErrProtocol)
	})
}

// TestFragments_Cancelled: a send whose fragments fill the ring waits as any other. It cannot be withdrawn any
// more, so its end comes with its receive, and nothing is lost.
func TestFragments_Cancelled(t *testing.T) {
	w := throughRing(t, Config{})
	connected(t, w)
	grown(t, w)
	const n = copycost.MaxMapped
	var sends []*request
	w[0].mu.Lock()
	for i := 0; len(sends) == 0; i++ {
		require.Less(t, i, 100)
		out := make([]byte, n)
		pattern(out, 0, i)
		r := w[0].Sends.sendFragmentsLocked(w[0].peers[1], envelope{Context: world0, Tag: int32(i)}, out, 24<<10)
		if r != nil {
			require.True(t, r.msg.Started() && !r.msg.Done())
			sends = append(sends, r)
		}
	}
	last := int(sends[0].msg.Tag)
	h := sends[0].handle()
	w[0].mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	canceller := w[0].Cancels.NewCanceller(ctx)
	w[0].Cancels.Bind(h, canceller)
	cancel()
	require.Eventually(t, func() bool { return canceller.ended.Load() != nil }, time.Minute, time.Millisecond)
	waited := make(chan error, 1)
	go func() {
		_, err := w[0].Requests.Wait(h)
		waited <- err
	}()
	in := make([]byte, n)
	for i := range last + 1 {
		_, err := w[1].recv(world0, in, 0, i, 1)
		require.NoError(t, err)
		require.NoError(t, checkPattern(in, 0, i))
	}
	require.NoError(t, <-waited)
}

// TestCopyCosts_AreSampled: ranks begin with what they are told, send some messages through the ring, and then
// know better.
func TestCopyCosts_AreSampled(t *testing.T) {
	start := copycost.Costs{Call: time.Hour, CallKiB: time.Hour, MappedKiB: 2 * time.Hour}
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second, StartCosts: start})
	connected(t, w)
	for k, e := range w {
		require.Equal(t, start.MappedKiB, e.CopyCosts().MappedKiB)
		require.Less(t, e.CopyCosts().Call, start.Call, "it is measured where ranks connect")
		require.Equal(t, copycost.MinAwaited, e.peers[1-k].copies.awaited)
	}
	b := [2][]byte{make([]byte, 16<<10), make([]byte, 16<<10)}
	for range 200 {
		for k, e := range w {
			done := make(chan error, 1)
			go func() { done <- e.Sends.Send(world0, b[k], 1-k, 1) }()
			_, err := w[1-k].recv(world0, b[1-k], k, 1, 1)
			require.NoError(t, errors.Join(err, <-done))
		}
	}
	if w[0].hub.clock.ticks == 0 {
		t.Skip("no clock that is cheap enough")
	}
	for k, e := range w {
		require.Less(t, e.CopyCosts().MappedKiB, start.MappedKiB)
		p := e.peers[1-k]
		require.Positive(t, p.copies.in.KiB())
		require.LessOrEqual(t, copycost.MinAwaited, p.copies.awaited)
		require.Less(t, p.shortLimit, copycost.MinSample, "so that copies are sampled")
	}
}

// TestTakeover: a rank whose copies into the ring take long asks its peer to take over lines, and asks no more
// when that makes them no quicker.
func TestTakeover(t *testing.T) {
	w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
	connected(t, w)
	p := w[0].peers[1]
	const n, slow = 2000, 1 << 40 // bytes that always go through the ring, ticks
	if !p.copies.sampled {
		t.Skip("copies are not sampled here")
	}
	asks := func() bool {
		w[0].mu.Lock()
		defer w[0].mu.Unlock()
		w[0].endRingSample(p, sys.Ticks()-slow, n)
		return p.copies.in.takeover.Ask()
	}
	windows := func(want bool) {
		for i := 0; asks() != want; i++ {
			require.Less(t, i, 1000)
		}
	}
	windows(true)
	b := [2][]byte{make([]byte, n), make([]byte, n)}
	pattern(b[0], 0, 1)
	taken := func() bool {
		w[0].mu.Lock()
		defer w[0].mu.Unlock()
		return p.ch.Takeover()
	}
	for i := 0; !taken(); i++ {
		require.Less(t, i, 1000)
		clear(b[1])
		done := make(chan error, 1)
		go func() { done <- w[0].Sends.Send(world0, b[0], 1, 1) }()
		_, err := w[1].recv(world0, b[1], 0, 1, 1)
		require.NoError(t, errors.Join(err, <-done))
		require.NoError(t, checkPattern(b[1], 0, 1))
	}
	windows(false)
	require.False(t, taken())
}
