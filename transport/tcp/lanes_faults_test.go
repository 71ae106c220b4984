package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

// newMixed connects two ranks whose devices have different options.
func newMixed(t *testing.T, a, b Options) [2]*host {
	x, y := newHostOfRank(t, a, 0), newHostOfRank(t, b, 1)
	require.NoError(t, x.ep.Connect(t.Context(), 1, y.ep.Addr()))
	return [2]*host{x, y}
}

// Both sides have to be able to have lanes, and then the smaller number holds.
func TestLanes_NumberIsTheSmaller(t *testing.T) {
	for _, c := range []struct {
		a, b  Options
		lanes int // 0: one connection as usual
	}{
		{Options{}, Options{}, 0},
		{Options{Lanes: 1}, Options{Lanes: 4}, 0},
		{Options{Lanes: 4}, Options{}, 0},
		{Options{Lanes: 4}, Options{Lanes: 2}, 2},
		{Options{Lanes: 2}, Options{Lanes: message.MaxLanes}, 2},
		{Options{Reconnect: true}, Options{Lanes: 4}, 1},
		{Options{Reconnect: true}, Options{Reconnect: true}, 1},
		{Options{Reconnect: true}, Options{}, 0},
	} {
		for _, h := range newMixed(t, c.a, c.b) {
			m := h.nextMade()
			q := m.qp.(*qp)
			require.Equal(t, max(1, c.lanes), q.Query().Lanes, "%+v", c)
			require.Equal(t, c.lanes == 0, lanesOf(q) == nil, "%+v", c)
			q.Release()
		}
	}
	four := slices.Repeat([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, 4)
	for _, o := range []Options{{Lanes: -1}, {Lanes: message.MaxLanes + 1}, {Interfaces: make([]netip.Addr, 1)},
		{Interfaces: four}} {
		_, err := New(o)
		require.Error(t, err, "%+v", o)
	}
}

// One lane that is not kept alive is the connection of before: nothing of lanes is there, and a lost
// connection is a lost peer.
func TestLanes_H6_OneLaneIsAConnectionAsEver(t *testing.T) {
	list := newCouple(t, Options{Lanes: 1}, 64, nil)
	for i, s := range list {
		require.Nil(t, s.lanesOf())
		require.Equal(t, frame.HeaderSize, firstLink(s.to).in.size)
		require.Equal(t, transport.LaneStats{}, s.to.Lanes())
		require.Equal(t, 10*time.Second/keepalive.MaxMissed, s.dev.Query().TickPeriod)
		s.writes(t, list[1-i])
	}
	drive(t, list, "the Writes", func() bool {
		return same8(list[0]) == list[1].seq &&
			same8(list[1]) == list[0].seq
	})
	require.NoError(t, reset(firstLink(list[0].to).fd))
	drive(t, list, "the loss", func() bool {
		return list[0].to.State() == transport.StateError && list[1].to.State() == transport.StateError
	})
	require.ErrorIs(t, list[0].to.Err(), transport.ErrPeerLost)
}

func same8(s *side) uint64 {
	b := s.in.Bytes()
	return leWord(b[len(b)-8:])
}

// Lanes are made from and to the addresses of the interfaces in turn.
func TestLanes_SpreadOverInterfaces(t *testing.T) {
	addresses := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"),
		netip.MustParseAddr("127.0.0.3")}
	list := newCouple(t, Options{Lanes: 6, Interfaces: addresses}, 64, nil)
	lanesUp(t, list, 6)
	near, far := map[netip.Addr]int{}, map[netip.Addr]int{}
	for _, l := range list[0].lanesOf().conns {
		a, b := socketAddresses(t, l.fd)
		near[a]++
		far[b]++
	}
	want := map[netip.Addr]int{addresses[0]: 2, addresses[1]: 2, addresses[2]: 2}
	require.Equal(t, want, near)
	require.Equal(t, want, far)
	exchange(t, list, 1, 96<<10, requests(50), func() {})
}

// A lane that brings damaged frames is lost, and nothing else.
func TestLanes_H5_DamagedLaneIsLostAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	var p *proxy
	list := newCouple(t, Options{Lanes: 2, Checksum: ChecksumAlways}, 64, func(addr string) string {
		var err error
		p, err = newProxy(addr, faults{})
		require.NoError(t, err)
		t.Cleanup(p.close)
		return p.addr()
	})
	lanesUp(t, list, 2)
	strikes := int64(0)
	var armed [2]*wire
	passes := 0 // since then
	exchange(t, list, 2, 256<<10, func(uint64) bool { return strikes >= 20 }, func() {
		if armed[0] != nil {
			if passes++; armed[0].struck.Load() == 0 {
				// The lane may have been made from the other end, not through the proxy: then once more. Or
				// it may carry next to nothing, since which does is not for this test to say: then another,
				// in the end.
				l := list[0].lanesOf().conns
				if waits := p.waits(); len(l) >= 2 && (waits || passes > 5000) {
					if passes = 0; !waits {
						armed[0] = nil
					}
					require.NoError(t, reset(l[random.IntN(len(l))].fd))
				}
				return
			}
			strikes++
			armed[0] = nil
		}
		if strikes < 20 && len(list[0].lanesOf().conns) >= 2 {
			passes = 0
			// of the lane that takes the place of this one
			armed = p.arm(faults{flip: 8*2000 + random.IntN(8*20000)}, faults{})
			require.NoError(t, reset(list[0].lanesOf().conns[random.IntN(2)].fd))
		}
	})
	for _, s := range list {
		require.GreaterOrEqual(t, s.lanesOf().laneStats().Down, uint64(strikes))
	}
}

// When no lane is left and none can be made, because nobody answers, the peer is lost when its time is over,
// and not before.
func TestLanes_PeerIsLostWhenNoLaneComesBack(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()
	const timeout = 300 * time.Millisecond
	list := newCouple(t, Options{Lanes: 2, PeerTimeout: timeout}, 64, nil)
	lanesUp(t, list, 2)
	for _, s := range list {
		s.lanesOf().dial.routes = routes{dialed: mute.Addr().String()}
		require.NoError(t, s.to.PostRecv(&transport.RecvWR{ID: 1}))
	}
	began := time.Now()
	for _, l := range list[0].lanesOf().conns {
		require.NoError(t, reset(l.fd))
	}
	drive(t, list, "the end", func() bool {
		return list[0].to.State() == transport.StateError && list[1].to.State() == transport.StateError
	})
	require.GreaterOrEqual(t, time.Since(began), timeout)
	for _, s := range list {
		require.ErrorIs(t, s.to.Err(), transport.ErrPeerLost)
		require.NotEqual(t, transport.StatusSuccess, s.wcs[0].Status)
	}
}

// A Terminate that is lost with its lanes reaches the peer over the next lane.
func TestLanes_TerminateThatIsLostIsSentAgain(t *testing.T) {
	for name, o := range map[string]Options{"plain": {Lanes: 2}, "TLS": {Lanes: 2, TLS: true},
		"checksum": {Lanes: 2, Checksum: ChecksumAlways}} {
		t.Run(name, func(t *testing.T) {
			for loser := range 2 {
				list := newCouple(t, o, 64, nil)
				lanesUp(t, list, 2)
				for _, fd := range list[loser].to.(*qp).fds() {
					require.NoError(t, reset(fd))
				}
				list[1-loser].to.Abort(errors.New("the reason"))
				drive(t, list, "the end", func() bool { return list[loser].to.State() == transport.StateError })
				require.ErrorContains(t, list[loser].to.Err(), `"the reason"`)
			}
		})
	}
}

// A lane over which a Terminate would be sent again begins with Ready: the error names what came instead.
func TestLanes_TerminateIsSentAgainAfterReady(t *testing.T) {
	list := newCouple(t, Options{Lanes: 2}, 64, nil)
	e, d := list[0].dev.end, &list[0].lanesOf().dial
	for want, h := range map[string]frame.Header{
		"protocol violation: Alive where Ready must come first": {Op: frame.Alive},
		"protocol violation: frame type 99 with flags 0x0":      {Op: 99},
		"protocol violation: Write with sequence number 0":      {Op: frame.Write},
	} {
		near, far := streams(t)
		_, err := far.Write(frame.AppendOverLane(nil, h, 0, 0, 0, 0, nil, false))
		require.NoError(t, err)
		require.EqualError(t, e.repeatTerminate(setup.New(&e.local, near), d, &lastFrame{}), want)
	}
}

// When the peer's process is gone nobody listens there: it is lost at once.
func TestLanes_PeerThatIsGoneIsLostAtOnce(t *testing.T) {
	list := newCouple(t, Options{Lanes: 3, PeerTimeout: time.Hour}, 64, nil) // no timeout finds it
	lanesUp(t, list, 3)
	require.NoError(t, provider{}.Vanish(list[1].dev))
	drive(t, [2]*side{list[0], list[0]}, "the end",
		func() bool { return list[0].to.State() == transport.StateError })
	require.ErrorIs(t, list[0].to.Err(), transport.ErrPeerLost)
}

// A lost lane is told of when the queue pair has gone on without it. A peer that closes or dies ends all of its
// lanes, of which one is seen to end first.
func TestLanes_LossIsToldIfTheQueuePairGoesOn(t *testing.T) {
	var text bytes.Buffer // both ends are driven by this goroutine
	options := Options{Lanes: 2, Log: slog.New(slog.NewTextHandler(&text, nil))}
	tick := func(list []*side, times int) {
		now := time.Now()
		for range times {
			now = now.Add(list[0].dev.tickPeriod())
			for _, s := range list {
				s.cq.Tick(now)
				s.poll()
			}
		}
	}
	list := newCouple(t, options, 64, nil)
	lanesUp(t, list, 2)
	require.NoError(t, reset(list[0].lanesOf().conns[1].fd))
	drive(t, list, "the loss of the lane", func() bool {
		return list[0].lanesOf().laneStats().Down == 1 && list[1].lanesOf().laneStats().Down == 1
	})
	lanesUp(t, list, 2)
	require.NotContains(t, text.String(), "a lane is lost")
	tick(list[:], 3)
	require.Equal(t, 2, strings.Count(text.String(), "a lane is lost"), "%s", text.String())
	require.Contains(t, text.String(), " interface=lo ") // of the end that still had its address

	text.Reset()
	list = newCouple(t, options, 64, nil)
	lanesUp(t, list, 2)
	require.NoError(t, provider{}.Vanish(list[1].dev))
	drive(t, [2]*side{list[0], list[0]}, "the end",
		func() bool { return list[0].to.State() == transport.StateError })
	tick(list[:1], 3)
	require.NotContains(t, text.String(), "a lane is lost")
}

// A lane that is silent while others bring something is lost by the ticks of both, and re-established.
func TestLanes_SilentLaneIsLost(t *testing.T) {
	list := newCouple(t, Options{Lanes: 2}, 64, nil)
	lanesUp(t, list, 2)
	stale := list[0].lanesOf().find(0)
	for _, s := range list {
		s.lanesOf().find(0).awaitingFirstFrame = true // it says nothing any more, as if its network had gone
	}
	now := time.Now()
	for i := range 3 * maxMissedOfLane {
		now = now.Add(list[0].dev.tickPeriod())
		for _, s := range list {
			s.cq.Tick(now)
			s.poll()
		}
		if i < maxMissedOfLane-1 {
			require.GreaterOrEqual(t, stale.fd, 0, "tick %d", i)
		}
	}
	require.Equal(t, -1, stale.fd)
	lanesUp(t, list, 2)
	require.Equal(t, uint64(1), list[0].lanesOf().laneStats().Down)
	exchange(t, list, 4, 64<<10, requests(50), func() {})
}

// A peer that runs, and says nothing on any lane, keeps its lanes; one that does not loses them all.
func TestLanes_PeerThatRunsIsNotLost(t *testing.T) {
	running := true
	list := newCouple(t, Options{Lanes: 2, Running: func(uint32) bool { return running }}, 64, nil)
	lanesUp(t, list, 2)
	now := time.Now()
	tick := func(n int) {
		for range n {
			now = now.Add(list[0].dev.tickPeriod())
			list[0].cq.Tick(now)
			list[0].poll()
		}
	}
	tick(3 * maxMissedOverLanes)
	require.Equal(t, transport.StateReady, list[0].to.State())
	require.Zero(t, list[0].lanesOf().laneStats().Down)
	running = false
	tick(1)
	require.Equal(t, transport.StateError, list[0].to.State())
	require.ErrorContains(t, list[0].to.Err(), "silent")
}

// Who does not know the queue pair's token joins no lane, though he knows the job's secret; nor who does not
// know that.
func TestLanes_JoinWantsTheToken(t *testing.T) {
	list := newCouple(t, Options{Lanes: 2}, 64, nil)
	lanesUp(t, list, 2)
	b := list[0].lanesOf()
	e := list[0].dev.end
	forged := &laneDialer{q: b.q, routes: b.dial.routes, initiator: true}
	forged.lastNumber.Store(1001)
	require.ErrorIs(t, e.join(t.Context(), forged, 0), handshake.ErrGone)
	forged.token = b.dial.token
	forged.lastNumber.Store(1000) // a number of the other side
	require.ErrorIs(t, e.join(t.Context(), forged, 0), handshake.ErrGone)
	secret := e.local.ID.Secret
	e.local.ID.Secret[0]++
	require.ErrorIs(t, e.join(t.Context(), forged, 0), transport.ErrAuth)
	e.local.ID.Secret = secret
	require.Len(t, list[1].lanesOf().conns, 2)

	plain := newCouple(t, Options{}, 64, nil) // has no lanes at all
	forged = &laneDialer{q: plain[0].to.(*qp), routes: routes{dialed: plain[1].ep.Addr()[len("tcp:"):]},
		initiator: true}
	require.ErrorIs(t, plain[0].dev.end.join(t.Context(), forged, 0), transport.ErrRefused)
}

// A million buffers, each used again as soon as its request is complete, while lanes are cut: none shows what
// it had before.
func TestLanes_H5_AMillionReuses(t *testing.T) {
	const batch, size = 32, 64
	total := uint64(1_000_000)
	if !testlength.Whole() {
		total /= 10 // for it has little to find here
	}
	list := newCouple(t, Options{Lanes: 2}, 64, nil)
	lanesUp(t, list, 2)
	s, r := list[0], list[1]
	alloc := func(x *side) transport.MR {
		m, err := x.pd.Alloc(batch*size, transport.RemoteWrite)
		require.NoError(t, err)
		return m
	}
	src, dst := alloc(s), alloc(r)
	out, in := src.Bytes(), dst.Bytes()
	wr := transport.SendWR{Op: transport.OpWriteImm, Local: make([]transport.SGE, 1),
		Remote: make([]transport.Segment, 1)}
	recv := &transport.RecvWR{}
	for range batch {
		require.NoError(t, r.to.PostRecv(recv))
	}
	posted, done, got := uint64(0), uint64(0), uint64(0)
	for got < total {
		for posted < total && posted-done < batch && posted-got < batch {
			at := int(posted%batch) * size
			for i := 0; i < size; i += 8 {
				putWord(out[at+i:], posted<<8|uint64(i))
			}
			wr.Imm, wr.Flags = uint32(posted), transport.FlagSignaled
			if posted%batch != batch-1 {
				wr.Flags |= transport.FlagMore
			}
			wr.Local[0] = transport.SGE{MR: src, Offset: at, Length: size}
			wr.Remote[0] = transport.Segment{Key: dst.Key(), Offset: uint64(at), Length: size}
			if err := s.to.PostSend(&wr); err != nil {
				t.Fatal(err)
			}
			posted++
		}
		n := s.cq.Poll(s.room[:])
		for range s.room[:n] {
			clear(out[int(done%batch)*size:][:size]) // it is ours again
			done++
		}
		n = r.cq.Poll(r.room[:])
		for _, wc := range r.room[:n] {
			if wc.Err != nil || wc.Imm != uint32(got) {
				t.Fatalf("message %d where %d is due: %v", wc.Imm, got, wc.Err)
			}
			at := int(got%batch) * size
			for i := 0; i < size; i += 8 {
				if v := leWord(in[at+i:]); v != got<<8|uint64(i) {
					t.Fatalf("word %d of message %d is %#x", i/8, got, v)
				}
			}
			got++
			if err := r.to.PostRecv(recv); err != nil {
				t.Fatal(err)
			}
		}
		r.cq.Placed(r.qps[:])
		if got%(total/50) < 16 && len(s.lanesOf().conns) == 2 && got > 0 &&
			s.lanesOf().laneStats().Down < got/(total/50) {
			require.NoError(t, reset(s.lanesOf().conns[0].fd)) // the one that carries what is small
		}
	}
	require.GreaterOrEqual(t, s.lanesOf().laneStats().Down, uint64(20), fmt.Sprint(s.lanesOf().laneStats()))
}

func putWord(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}

// The steady state allocates nothing.
func TestLanes_NoAllocations(t *testing.T) {
	list := newCouple(t, Options{Lanes: 2}, 4096, nil)
	lanesUp(t, list, 2)
	turn := func() {
		list[0].writes(t, list[1])
		list[1].awaits(t, list[0])
		list[1].writes(t, list[0])
		list[0].awaits(t, list[1])
	}
	for range 1000 {
		turn()
	}
	require.Zero(t, testing.AllocsPerRun(1000, turn))
}

// socketAddresses are those of a socket's two ends.
func socketAddresses(t *testing.T, fd int) (near, far netip.Addr) {
	address := func(sa syscall.Sockaddr, err error) netip.Addr {
		require.NoError(t, err)
		return netip.AddrFrom4(sa.(*syscall.SockaddrInet4).Addr)
	}
	return address(syscall.Getsockname(fd)), address(syscall.Getpeername(fd))
}
