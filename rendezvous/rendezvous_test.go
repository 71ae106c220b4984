package rendezvous_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// TestRendezvous_SendQueueFullAtEachPoint runs random messages both ways while the queue pairs take only a
// few requests at once, and one or the other step is left out. Each request finds the queue full at some
// time, and nothing is lost.
func TestRendezvous_SendQueueFullAtEachPoint(t *testing.T) { ways(t, sendQueueFull) }

func sendQueueFull(t *testing.T, grant bool) {
	refused := map[string]int{}
	for seed := range testlength.Of[uint64](50, 12) {
		rng := rand.New(rand.NewPCG(seed, 1))
		l := openCounting(t, nil, rendezvous.ReceiverConfig{Piece: 1 + rng.IntN(64), Depth: 1 + rng.IntN(6),
			Grant: grant}, refused)
		l.A.Depth, l.B.Depth = 1+rng.IntN(4), 1+rng.IntN(4)
		nodes := [2]*node{l.a, l.b}
		for _, n := range nodes {
			n.size = func(rts rendezvous.RTS) int { return max(0, int(rts.Length)+20-rng.IntN(60)) }
			n.cut = cutter(rng)
		}
		const total = 40
		for steps := 0; ; steps++ {
			if steps == 100_000 {
				t.Fatalf("seed %d: no end: %v, %v", seed, l.a.check(l.b), l.b.check(l.a))
			}
			n := nodes[rng.IntN(2)]
			var err error
			switch rng.IntN(5) {
			case 0:
				if len(n.sources) < total {
					_, err = n.announce(pattern(n.rank, len(n.sources), rng.IntN(300)), rng.IntN(2) == 0)
				}
			case 1:
				err = n.receive(1 + rng.IntN(3))
			case 2:
				err = n.complete(1 + rng.IntN(3))
			case 3:
				err = l.Drive()
			case 4:
				_, err = n.ch.Progress()
				err = errors.Join(err, n.progress())
			}
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if steps%64 == 0 && len(l.a.sources)+len(l.b.sources) == 2*total && l.a.check(l.b) == nil &&
				l.b.check(l.a) == nil {
				break
			}
		}
		l.close(t)
	}
	each := []string{"RTS", "READ", "FIN"}
	if grant {
		each = []string{"RTS", "CTS", "WRITE", "END", "FIN"}
	}
	for _, what := range each {
		require.Greater(t, refused[what], testlength.Of(100, 25), "%s", what)
	}
}

// TestRendezvous_AnnouncementsHaveNoLimit: beyond those for which a receive request is posted, announcements
// end through the ring.
func TestRendezvous_AnnouncementsHaveNoLimit(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Depth: 200})
	l.b.keep = func(rendezvous.RTS) bool { return true }
	for i := 0; i < 20*rendezvous.MaxFINs; {
		ok, err := l.a.announce(pattern(0, i, 50), false)
		require.NoError(t, err)
		if ok {
			i++
			require.Equal(t, i, l.a.snd.Outstanding(l.a.ch))
			continue
		}
		// Credits, or the ring grows for want of them: B takes the announcements and does not read.
		require.NoError(t, l.Drive())
		require.NoError(t, l.a.receive(1))
		require.NoError(t, l.b.receive(1<<20))
		for _, n := range []*node{l.a, l.b} {
			_, err = n.ch.Progress()
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, l.a.recvs, rendezvous.MaxFINs)
	for len(l.b.kept) < len(l.a.sources) {
		require.NoError(t, l.Drive())
		l.a.work(t)
		l.b.work(t)
	}
	kept := l.b.kept
	l.b.keep, l.b.kept = nil, nil
	for _, rts := range kept {
		require.NoError(t, l.b.match(rts))
	}
	l.settle(t, false)
	require.Equal(t, rendezvous.MaxFINs, l.a.used)
	l.close(t)
}

// TestRendezvous_Withdraw has messages withdrawn at random moments, of which some have been matched: each
// ends once, in one of two ways, and the two ends agree in which.
func TestRendezvous_Withdraw(t *testing.T) {
	ways(t, func(t *testing.T, grant bool) {
		l := open(t, rendezvous.ReceiverConfig{Piece: 40, Depth: 3, Grant: grant})
		rng := rand.New(rand.NewPCG(1, 2))
		l.b.keep = func(rendezvous.RTS) bool { return true }
		const messages = 2000
		for len(l.a.sources) < messages || l.a.snd.Outstanding(l.a.ch) > 0 {
			if len(l.a.sources) < messages && rng.IntN(2) == 0 {
				_, err := l.a.announce(pattern(0, len(l.a.sources), rng.IntN(100)), false)
				require.NoError(t, err)
			}
			if len(l.a.ids) > 0 && rng.IntN(2) == 0 {
				i := max(0, len(l.a.ids)-1-rng.IntN(50))
				if l.a.finished[i] == 0 && !l.a.asked[i] {
					l.a.asked[i] = true
					require.NoError(t, l.a.snd.Withdraw(l.a.ch, l.a.ids[i]))
				}
			}
			if k := len(l.b.kept); k > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(k)
				rts := l.b.kept[i]
				l.b.kept = slices.Delete(l.b.kept, i, i+1)
				require.NoError(t, l.b.match(rts))
			}
			if rng.IntN(3) == 0 {
				require.NoError(t, l.Drive())
				l.a.work(t)
				l.b.work(t)
			}
		}
		l.settle(t, false)
		for i, n := range l.a.finished {
			require.Equal(t, 1, n, "message %d", i)
		}
		require.Equal(t, messages, l.a.back+len(l.b.rts))
		require.Empty(t, l.b.kept)
		require.Greater(t, l.a.back, 100)
		require.Greater(t, l.b.late, 100)
		l.close(t)
	})
}

// TestFIN_ThatNamesNothing is the peer's error, and leaves what is announced as it is: an index that was
// never used, one that is free, an earlier generation of one in use, another channel's, bits that no FIN has.
func TestFIN_ThatNamesNothing(t *testing.T) {
	l, other := open(t, rendezvous.ReceiverConfig{}), open(t, rendezvous.ReceiverConfig{})
	refused := func(c *channel.Channel, imm uint32) {
		t.Helper()
		_, err := l.a.snd.OnFIN(c, imm)
		require.ErrorIs(t, err, transport.ErrProtocol)
		require.ErrorContains(t, err, fmt.Sprintf("%#x", imm))
	}
	refused(l.a.ch, 0)
	var old []uint32
	for range 3 {
		ok, err := l.a.announce(pattern(0, 0, 9), false)
		require.NoError(t, err)
		require.True(t, ok)
		rts, err := rendezvous.ParseRTS(l.arrive(t, l.b.ch))
		require.NoError(t, err)
		imm := uint32(rts.ID)
		require.NotContains(t, old, imm)
		for _, o := range old {
			refused(l.a.ch, o)
		}
		refused(other.a.ch, imm)
		for bit := range 32 {
			refused(l.a.ch, imm^1<<bit)
		}
		require.Equal(t, 1, l.a.snd.Outstanding(l.a.ch))
		require.Equal(t, 3, l.A.Regions())
		token, err := l.a.snd.OnFIN(l.a.ch, imm)
		require.NoError(t, err)
		require.Equal(t, uint64(len(l.a.sources)-1), token)
		refused(l.a.ch, imm)
		old = append(old, imm)
	}
	l.close(t)
	other.close(t)
}

// TestFail_InEachState cuts the connection after every number of steps of a run with everything in it:
// announced, half read, read, FIN on its way or unadvertised. Each token comes back exactly once, nothing
// stays registered, and what completes later is nobody's.
func TestFail_InEachState(t *testing.T) { ways(t, failInEachState) }

func failInEachState(t *testing.T, grant bool) {
	lost := errors.New("cut")
	seen := map[string]int{}
	for cut := 0; ; cut++ {
		for _, depth := range []int{1, 2, 256} {
			l := open(t, rendezvous.ReceiverConfig{Piece: 10, Depth: 3, Grant: grant})
			l.A.Depth, l.B.Depth = depth, depth
			nodes := [2]*node{l.a, l.b}
			step := 0
			over := false
			for ; step < cut && !over; step++ {
				n := nodes[step%2]
				switch step / 2 % 5 {
				case 0:
					if i := len(n.sources); i < 6 {
						_, err := n.announce(pattern(n.rank, i, i*11), false)
						require.NoError(t, err)
					}
				case 1, 3:
					require.NoError(t, l.Drive())
				case 2:
					require.NoError(t, n.receive(1))
				case 4:
					require.NoError(t, n.complete(2))
					require.NoError(t, n.progress())
				}
				over = len(l.a.sources)+len(l.b.sources) == 12 && l.a.check(l.b) == nil &&
					l.b.check(l.a) == nil
			}
			l.A.Abort(lost)
			for _, n := range nodes {
				require.NoError(t, n.snd.Fail(n.ch,
					func(token uint64) { n.finished[token]++; seen["announced"]++ }))
				require.NoError(t, n.rcv.Fail(n.ch,
					func(token uint64) { n.fetched[token]++; seen["being read"]++ }))
				for _, times := range [][]int{n.finished, n.fetched} {
					for token, k := range times {
						require.Equal(t, 1, k, "cut after %d steps: token %d", cut, token)
					}
				}
				require.Zero(t, n.snd.Outstanding(n.ch))
				none := func(token uint64) { t.Fatalf("token %d comes back again", token) }
				require.NoError(t, n.snd.Fail(n.ch, none))
				require.NoError(t, n.rcv.Fail(n.ch, none))
				require.NoError(t, n.progress())
				var wcs [512]transport.WC
				for _, wc := range wcs[:n.poll(wcs[:])] {
					if !owns(wc.ID) {
						continue
					}
					completed := n.rcv.OnCompletion
					if wc.Op != transport.OpRead {
						completed = n.snd.OnCompletion
					}
					_, done, err := completed(&wc)
					require.NoError(t, err)
					require.False(t, done)
					seen["completed late"]++
				}
				require.NoError(t, n.ch.Fail(lost))
				ok, err := n.announce([]byte{1}, false)
				require.NoError(t, err)
				require.False(t, ok)
			}
			require.Zero(t, l.A.Regions()+l.B.Regions(), "cut after %d steps", cut)
			if over && depth == 1 {
				require.Greater(t, seen["announced"], 100)
				require.Greater(t, seen["being read"], 100)
				require.Greater(t, seen["completed late"], 100)
				return
			}
			require.Less(t, cut, 2000)
		}
	}
}

// TestFail_OfOneChannel leaves what another channel of the same rank announces and fetches as it is.
func TestFail_OfOneChannel(t *testing.T) { ways(t, failOneChannel) }

func failOneChannel(t *testing.T, grant bool) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 7, Depth: 2, Grant: grant})
	second := l.beside(t) // between the same two ranks, so that all tables are shared
	for i := range 5 {
		for _, n := range []*node{l.a, l.b, second.a, second.b} {
			ok, err := n.announce(pattern(n.rank, i, 30), false)
			require.NoError(t, err)
			require.True(t, ok)
		}
	}
	require.NoError(t, l.Drive())
	for _, n := range []*node{l.a, l.b, second.a, second.b} {
		require.NoError(t, n.receive(3))
	}
	require.NoError(t, l.Drive())
	for _, n := range []*node{second.a, second.b} {
		given := 0
		require.NoError(t, n.snd.Fail(n.ch, func(token uint64) { n.finished[token]++ }))
		require.NoError(t, n.rcv.Fail(n.ch, func(token uint64) { n.fetched[token]++; given++ }))
		require.Equal(t, []int{1, 1, 1, 1, 1}, n.finished)
		require.Equal(t, []int{1, 1, 1}, n.fetched)
		require.Equal(t, 3, given)
		require.Equal(t, 5, n.snd.Outstanding(l.a.ch)+n.snd.Outstanding(l.b.ch))
	}
	l.settle(t, false)
	require.NoError(t, second.a.ch.Fail(nil))
	require.NoError(t, second.b.ch.Fail(nil))
	l.close(t)
}

// TestStart_ReadsFromTheOffset that the RTS has, though weft's own announcements begin at 0.
func TestStart_ReadsFromTheOffset(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 7, Depth: 2})
	src, dst := pattern(0, 0, 200), make([]byte, 60)
	mr, err := l.A.PD().Register(src, transport.RemoteRead)
	require.NoError(t, err)
	require.NoError(t, l.A.PostRecv(&transport.RecvWR{}))
	done, err := l.b.rcv.Start(l.b.ch, rendezvous.Source{ID: 9, Key: mr.Key(), Offset: 100, Length: 50},
		[][]byte{dst}, 3)
	require.NoError(t, err)
	for !done {
		require.NoError(t, l.Drive())
		var wcs [2]transport.WC
		n := l.B.Poll(wcs[:])
		require.Positive(t, n)
		for _, wc := range wcs[:n] {
			token, end, err := l.b.rcv.OnCompletion(&wc)
			require.NoError(t, err)
			if done = end; done {
				require.Equal(t, uint64(3), token)
			}
		}
	}
	require.Equal(t, append(src[100:150:150], make([]byte, 10)...), dst)
	require.NoError(t, l.Drive())
	var wcs [1]transport.WC
	require.Equal(t, 1, l.A.Poll(wcs[:]))
	require.Equal(t, uint32(9), wcs[0].Imm)
	require.NoError(t, mr.Deregister())
	l.close(t)
}

// TestCompletion_OfAnEarlierFetch, or of nobody, changes nothing.
func TestCompletion_OfAnEarlierFetch(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 10, Depth: 1})
	var ids []uint64
	for i := range 3 {
		ok, err := l.a.announce(pattern(0, i, 20), false)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, l.Drive())
		require.NoError(t, l.b.receive(1))
		for _, id := range append(ids, 0, 1, ^uint64(0), 0x52<<56|99) {
			_, done, err := l.b.rcv.OnCompletion(&transport.WC{ID: id, Op: transport.OpRead, Bytes: 20})
			require.NoError(t, err)
			require.False(t, done)
		}
		require.NoError(t, l.Drive())
		var wc [1]transport.WC
		require.Equal(t, 1, l.B.Poll(wc[:]))
		require.NotContains(t, ids, wc[0].ID)
		ids = append(ids, wc[0].ID)
		_, done, err := l.b.rcv.OnCompletion(&wc[0])
		require.NoError(t, err)
		require.False(t, done)
		l.settle(t, false)
	}
	l.close(t)
}

// TestRendezvous_NoAllocationInSteadyState counts both ends: announcement, READs, FIN.
func TestRendezvous_NoAllocationInSteadyState(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{Piece: 1000, Depth: 2})
	src, dst := pattern(0, 0, 3500), make([]byte, 3500)
	into := [][]byte{dst}
	round := func() {
		_, ok, err := l.a.snd.TrySendRTS(l.a.ch, eager.Envelope{Context: 1, Tag: 2}, src, 5, false)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		must(t, l.Drive())
		_, body, ok, err := l.b.ch.Next()
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		rts, err := rendezvous.ParseRTS(body)
		must(t, err)
		l.b.ch.Release()
		_, err = l.b.rcv.Start(l.b.ch, rts.Source, into, 6)
		must(t, err)
		l.readAndFinished(t, 6, 5)
	}
	require.Zero(t, testing.AllocsPerRun(300, round))
	require.Equal(t, src, dst)
	l.close(t)
}
