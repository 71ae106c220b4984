package rendezvous_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/sim"
)

// TestSim_Rendezvous runs random messages both ways while everything is placed in pieces and out of order.
func TestSim_Rendezvous(t *testing.T) {
	ways(t, func(t *testing.T, grant bool) {
		var reordered, parts, got int
		for seed := range testlength.Of[uint64](40, 10) {
			c, atOnce := runSim(t, seed, 25, grant)
			reordered += c.Reordered
			parts += c.Split
			got += atOnce
		}
		if grant {
			require.Zero(t, got)
		} else {
			require.Greater(t, got, testlength.Of(10, 1))
		}
		require.Greater(t, reordered, 1000)
		require.Greater(t, parts, 1000)
	})
}

// TestSim_RendezvousIsCut in the middle of such a run. Each token comes back once, by its end or by Fail;
// what was fetched before is right.
func TestSim_RendezvousIsCut(t *testing.T) { ways(t, cutSim) }

func cutSim(t *testing.T, grant bool) {
	var midway, failed int
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 12))
		s, nodes := newSim(t, seed, rng, grant)
		cut := 50 + rng.IntN(400)
		for step := 0; ; step++ {
			if step == cut {
				require.Equal(t, 1, s.CutMidway(0, 1))
			}
			n := nodes[rng.IntN(2)]
			if err := randomStep(n, rng, 1000); err != nil {
				require.True(t, errors.Is(err, transport.ErrPeerLost) || errors.Is(err, transport.ErrState),
					"seed %d: %v", seed, err)
				break
			}
			if step == 100_000 {
				t.Fatalf("seed %d: the cut does not strike", seed)
			}
		}
		midway += s.Counters().CutsMidway
		for i, n := range nodes {
			s.Sides[i].QP.Abort(transport.ErrPeerLost)
			s.Sides[i].QP.Release()
			require.NoError(t, n.snd.Fail(n.ch, func(token uint64) { n.finished[token]++; failed++ }))
			whole := append([]int{}, n.fetched...)
			require.NoError(t, n.rcv.Fail(n.ch, func(token uint64) { n.fetched[token]++; failed++ }))
			require.NoError(t, n.ch.Fail(transport.ErrPeerLost))
			for token, buf := range n.buffers {
				require.Equal(t, 1, n.fetched[token], "seed %d", seed)
				if want := nodes[1-i].sources[token]; whole[token] == 1 {
					want = want[:min(len(buf), len(want))]
					require.Equal(t, want, buf[:len(want)], "seed %d", seed)
				}
			}
			for _, times := range n.finished {
				require.Equal(t, 1, times, "seed %d", seed)
			}
			require.NoError(t, s.Sides[i].PD.Close(), "something is registered")
		}
		require.NoError(t, s.Close())
	}
	require.Greater(t, midway, 40)
	require.Greater(t, failed, 400)
}

// newSim makes two nodes with random limits. With grant there are no Reads.
func newSim(t *testing.T, seed uint64, rng *rand.Rand, grant bool) (*channeltest.Sim, [2]*node) {
	var nodes [2]*node
	shape := channeltest.Shape{
		SendWR: 1 + rng.IntN(20), RecvWR: 1000, Reads: 1 + rng.IntN(8),
		Private: func(rank int, pd transport.PD) ([]byte, error) {
			n := newNode(rank, pd, rendezvous.ReceiverConfig{Piece: 1 + rng.IntN(1000), Depth: 1 +
				rng.IntN(10), Grant: grant})
			n.size = func(rts rendezvous.RTS) int { return max(0, int(rts.Length)+50-rng.IntN(150)) }
			n.cut = cutter(rng)
			ch, err := channel.New(pd, channel.Config{})
			if err != nil {
				return nil, err
			}
			n.ch, nodes[rank] = ch, n
			return ch.Descriptor(), nil
		},
	}
	if grant {
		shape.Reads = 0
	}
	s, err := channeltest.NewSim(seed, shape)
	require.NoError(t, err)
	for i, side := range s.Sides {
		require.NoError(t, nodes[i].ch.Open(counting{side.QP, map[string]int{}, &nodes[i].recvs}, side.Peer))
		nodes[i].poll = side.CQ.Poll
	}
	return s, nodes
}

// randomStep does one thing at random, as long as the node has announced fewer than total.
func randomStep(n *node, rng *rand.Rand, total int) error {
	switch rng.IntN(4) {
	case 0:
		if len(n.sources) < total {
			_, err := n.announce(pattern(n.rank, len(n.sources), rng.IntN(1+rng.IntN(3000))),
				rng.IntN(2) == 0)
			return err
		}
		return nil
	case 1:
		return n.receive(1 + rng.IntN(5))
	case 2:
		return n.complete(1 + rng.IntN(5))
	default:
		_, err := n.ch.Progress()
		return errors.Join(err, n.progress())
	}
}

func runSim(t *testing.T, seed uint64, total int, grant bool) (c sim.Counters, got int) {
	rng := rand.New(rand.NewPCG(seed, 11))
	s, nodes := newSim(t, seed, rng, grant)
	defer func() { require.NoError(t, s.Close()) }()
	for steps := 1; ; steps++ {
		if steps == 200_000 {
			t.Fatalf("seed %d: no end: %v, %v", seed, nodes[0].check(nodes[1]), nodes[1].check(nodes[0]))
		}
		err := randomStep(nodes[rng.IntN(2)], rng, total)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if steps%64 == 0 && len(nodes[0].sources)+len(nodes[1].sources) == 2*total &&
			nodes[0].check(nodes[1]) == nil && nodes[1].check(nodes[0]) == nil {
			return s.Counters(), nodes[0].got + nodes[1].got
		}
	}
}
