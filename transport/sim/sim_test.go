package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
)

// rank is a rank of the tests here: all of them are driven by the test's goroutine.
type rank struct {
	t   *testing.T
	dev transport.Device
	ep  transport.Endpoint
	pd  transport.PD
	cq  transport.CQ
	mu  sync.Mutex
	qps map[uint32]transport.QP
}

func (r *rank) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, SendWR: 64, RecvWR: 64, Reads: 4}, nil,
		nil
}

func (r *rank) Connected(peer uint32, qp transport.QP, _ []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.qps[peer] = qp
}

func (r *rank) Refused(string, error) {}

func (r *rank) qp(peer uint32) transport.QP {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.qps[peer]
}

func ranks(t *testing.T, net *Network, n int) []*rank {
	var list []*rank
	for i := range n {
		r := &rank{t: t, dev: net.Device(), qps: map[uint32]transport.QP{}}
		t.Cleanup(func() { _ = r.dev.Close() })
		var err error
		r.pd, err = r.dev.AllocPD()
		require.NoError(t, err)
		r.cq, err = r.dev.CreateCQ(1<<12, 0)
		require.NoError(t, err)
		r.ep, err = r.dev.Listen(transport.Identity{Job: "sim", Rank: uint32(i), Size: uint32(n)}, r)
		require.NoError(t, err)
		list = append(list, r)
	}
	return list
}

// dial begins to connect, and gives the end of the attempt.
func dial(from, to *rank, peer uint32) <-chan error {
	done := make(chan error, 1)
	go func() { done <- from.ep.Connect(context.Background(), peer, to.ep.Addr()) }()
	return done
}

// begun waits until the network has n attempts under way.
func begun(t *testing.T, net *Network, n int) {
	require.Eventually(t, func() bool {
		net.mu.Lock()
		defer net.mu.Unlock()
		return len(net.attempts) >= n
	}, 2*time.Minute, 100*time.Microsecond)
}

func fillWith(buf []byte, source, sequence int) {
	for i := range buf {
		buf[i] = byte(source*31 + sequence*7 + i*i + i>>8)
	}
}

// play runs a fixed program of two ranks on this goroutine and tells all that the ranks could see of it.
func play(t *testing.T, seed uint64, opts ...Option) (string, Counters) {
	net := NewNetwork(seed, append(opts, ManualConnect())...)
	rs := ranks(t, net, 2)
	connected := []<-chan error{dial(rs[0], rs[1], 1), dial(rs[1], rs[0], 0)}
	begun(t, net, 2)
	for net.Step() {
	}
	for _, c := range connected {
		require.NoError(t, <-c)
	}
	var log strings.Builder
	var mem [2]transport.MR
	for i, r := range rs {
		var err error
		mem[i], err = r.pd.Alloc(1<<17, transport.RemoteRead|transport.RemoteWrite)
		require.NoError(t, err)
		fillWith(mem[i].Bytes()[:1<<16], i, 1)
		fmt.Fprintf(&log, "rank %d: key %#x\n", i, mem[i].Key())
	}
	total := 0
	for i, r := range rs {
		q := r.qp(uint32(1 - i))
		for k := range 12 {
			require.NoError(t, q.PostRecv(&transport.RecvWR{ID: uint64(100 + k)}))
			wr := &transport.SendWR{ID: uint64(k), Flags: transport.FlagSignaled,
				Local: []transport.SGE{{MR: mem[i], Offset: 0, Length: 5000}},
				Remote: []transport.Segment{{Key: mem[1-i].Key(), Offset: 1<<16 + uint64(5000*k),
					Length: 5000}}}
			switch k % 3 {
			case 0:
				wr.Op = transport.OpWrite
			case 1:
				wr.Op, wr.Imm = transport.OpWriteImm, uint32(k)
			case 2:
				wr.Op = transport.OpRead
				wr.Local[0].Offset, wr.Remote[0].Offset = 1<<16+5000*12, 0
			}
			require.NoError(t, q.PostSend(wr))
		}
		q.Close()
		total += 24
	}
	seen := 0
	final := func() bool {
		for i, r := range rs {
			if s := r.qp(uint32(1 - i)).State(); s != transport.StateClosed && s != transport.StateError {
				return false
			}
		}
		return true
	}
	for pass := 0; seen < total || !final(); pass++ {
		require.Less(t, pass, 100_000, "seed %d: %s", seed, log.String())
		for i, r := range rs {
			var wc [4]transport.WC
			for _, c := range wc[:r.cq.Poll(wc[:])] {
				fmt.Fprintf(&log, "pass %d: rank %d: %d %v %v\n", pass, i, c.ID, c.Status,
					r.qp(uint32(1-i)).State())
				seen++
			}
		}
	}
	for i, r := range rs {
		fmt.Fprintf(&log, "rank %d: %v, %v\n", i, r.qp(uint32(1-i)).State(), r.qp(uint32(1-i)).Err())
		require.NoError(t, r.dev.Close())
	}
	return log.String(), net.Counters()
}

func TestSeedGivesTheRun(t *testing.T) {
	runs := map[string]bool{}
	for seed := range uint64(20) {
		first, counted := play(t, seed)
		again, countedAgain := play(t, seed)
		require.Equal(t, first, again, "seed %d", seed)
		require.Equal(t, counted, countedAgain, "seed %d", seed)
		require.Positive(t, counted.Crossed+counted.Reordered+counted.Split)
		runs[first] = true
	}
	require.Len(t, runs, 20, "different seeds must give different runs")
}

func TestSeedCutsAnywhere(t *testing.T) {
	cuts, midway, lost, heard := 0, 0, 0, 0
	seeds := testlength.Of[uint64](300, 80)
	for seed := range seeds {
		log, c := play(t, seed, RandomCuts(60))
		again, _ := play(t, seed, RandomCuts(60))
		require.Equal(t, log, again, "seed %d", seed)
		cuts += c.Cuts
		midway += c.CutsMidway
		lost += c.Lost
		if strings.Contains(log, transport.ErrPeerLost.Error()) {
			heard++
			require.Positive(t, c.Cuts, "seed %d", seed)
		}
	}
	require.Positive(t, cuts)
	require.Less(t, cuts, int(seeds), "some runs must get through")
	require.Positive(t, midway)
	require.Positive(t, lost)
	require.Greater(t, heard, cuts*9/10, "a cut after the last byte may go unheard, others not")
}

func TestCrossedAttemptOfTheHigherRankGivesWay(t *testing.T) {
	crossed := 0
	for seed := range uint64(30) {
		net := NewNetwork(seed, ManualConnect())
		rs := ranks(t, net, 2)
		net.Collide(0, 1)
		up, down := dial(rs[0], rs[1], 1), dial(rs[1], rs[0], 0)
		begun(t, net, 2)
		for net.Step() {
		}
		require.NoError(t, <-up)
		require.NoError(t, <-down)
		require.EqualValues(t, 1, rs[0].qp(1).Num())
		require.EqualValues(t, 1, rs[1].qp(0).Num())
		crossed += net.Counters().Crossed
	}
	require.Positive(t, crossed)
}

func TestHoldDelaysConnections(t *testing.T) {
	net := NewNetwork(1)
	rs := ranks(t, net, 3)
	net.Hold(0, 1)
	held := dial(rs[1], rs[0], 0)
	require.NoError(t, <-dial(rs[2], rs[0], 0), "others are not held")
	require.Eventually(t, func() bool { return net.Counters().Delayed == 1 }, 2*time.Minute,
		100*time.Microsecond)
	require.Nil(t, rs[1].qp(0))
	net.Unhold(0, 1)
	require.NoError(t, <-held)
	require.NotNil(t, rs[1].qp(0))
}

func TestHeldAttemptEndsWithItsContextOrEndpoint(t *testing.T) {
	net := NewNetwork(1)
	rs := ranks(t, net, 2)
	net.Hold(0, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rs[0].ep.Connect(ctx, 1, rs[1].ep.Addr()) }()
	begun(t, net, 1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	other := dial(rs[1], rs[0], 0)
	begun(t, net, 1)
	require.NoError(t, rs[0].ep.Close())
	require.NoError(t, rs[1].ep.Close())
	require.Error(t, <-other)
}

func TestRefuseTurnsAttemptsAway(t *testing.T) {
	net := NewNetwork(1)
	rs := ranks(t, net, 2)
	net.Refuse(1, 0, 2)
	for range 2 {
		require.ErrorIs(t, <-dial(rs[0], rs[1], 1), transport.ErrRefused)
	}
	require.Equal(t, 2, net.Counters().Refused)
	require.NoError(t, <-dial(rs[0], rs[1], 1))
}

func TestCutMidwayLeavesAMessageInPart(t *testing.T) {
	for seed := range uint64(20) {
		net := NewNetwork(seed)
		rs := ranks(t, net, 2)
		require.NoError(t, <-dial(rs[0], rs[1], 1))
		src, err := rs[0].pd.Alloc(1<<20, transport.LocalWrite)
		require.NoError(t, err)
		dst, err := rs[1].pd.Alloc(1<<20, transport.RemoteWrite)
		require.NoError(t, err)
		fillWith(src.Bytes(), 0, int(seed))
		require.Equal(t, 1, net.CutMidway(0, 1))
		a := rs[0].qp(1)
		require.NoError(t, a.PostSend(&transport.SendWR{Op: transport.OpWrite,
			Local:  []transport.SGE{{MR: src, Length: 1 << 20}},
			Remote: []transport.Segment{{Key: dst.Key(), Length: 1 << 20}}}))
		require.Eventually(t, func() bool { return rs[1].qp(0) != nil }, 2*2*time.Minute, 100*time.Microsecond)
		b := rs[1].qp(0)
		for pass := 0; a.State() != transport.StateError || b.State() != transport.StateError; pass++ {
			require.Less(t, pass, 100_000)
			rs[0].cq.Poll(nil)
			rs[1].cq.Poll(nil)
		}
		require.Equal(t, 1, net.Counters().CutsMidway)
		require.ErrorIs(t, a.Err(), transport.ErrPeerLost)
		require.ErrorIs(t, b.Err(), transport.ErrPeerLost)
		require.NotEqual(t, src.Bytes(), dst.Bytes())
		for _, r := range rs {
			require.NoError(t, r.dev.Close())
		}
	}
}

func TestCutStrikesInEveryState(t *testing.T) {
	for _, state := range []transport.State{transport.StateReady, transport.StateClosing,
		transport.StateDraining} {
		net := NewNetwork(uint64(state))
		rs := ranks(t, net, 2)
		require.NoError(t, <-dial(rs[0], rs[1], 1))
		require.Eventually(t, func() bool { return rs[1].qp(0) != nil }, 2*2*time.Minute, 100*time.Microsecond)
		a, b := rs[0].qp(1), rs[1].qp(0)
		if state != transport.StateReady {
			b.Close()
			a, b = b, a
		}
		if state == transport.StateDraining {
			a, b = b, a
		}
		for pass := 0; a.State() != state; pass++ {
			require.Less(t, pass, 100_000)
			rs[0].cq.Poll(nil)
			rs[1].cq.Poll(nil)
		}
		require.Equal(t, 1, net.Cut(0, 1))
		require.Equal(t, 0, net.Cut(0, 1), "once is enough")
		require.Equal(t, state, a.State(), "nobody knows before he is driven")
		for pass := 0; a.State() != transport.StateError || b.State() != transport.StateError; pass++ {
			require.Less(t, pass, 100_000)
			rs[0].cq.Poll(nil)
			rs[1].cq.Poll(nil)
		}
		require.ErrorIs(t, a.Err(), transport.ErrPeerLost)
		require.Equal(t, 1, net.Counters().Cuts)
	}
}

func TestVanishedRankCanDoNothing(t *testing.T) {
	net := NewNetwork(1)
	rs := ranks(t, net, 2)
	require.NoError(t, <-dial(rs[0], rs[1], 1))
	require.Equal(t, 1, net.Vanish(1))
	require.Equal(t, 0, net.Vanish(1), "once is enough")
	_, err := rs[1].dev.AllocPD()
	require.ErrorIs(t, err, transport.ErrDeviceGone)
	require.ErrorIs(t, rs[1].cq.Wait(-1), transport.ErrDeviceGone)
	require.Error(t, <-dial(rs[0], rs[1], 1))
}

func TestRegisterIsCheapEnoughForEveryMessage(t *testing.T) {
	net := NewNetwork(1)
	r := ranks(t, net, 1)[0]
	buf := make([]byte, 64)
	register := func() {
		m, err := r.pd.Register(buf, transport.RemoteRead)
		if err != nil || m.Deregister() != nil {
			t.Error(err)
		}
	}
	register()
	require.Zero(t, testing.AllocsPerRun(100, register))
}
