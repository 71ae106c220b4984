package rendezvous_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/sim"
)

// TestSim_Rendezvous runs random messages both ways while everything is placed in pieces and out of order.
func TestSim_Rendezvous(t *testing.T) {
	var reordered, parts int
	for seed := range uint64(60) {
		c := runSim(t, seed, 25)
		reordered += c.Reordered
		parts += c.Split
	}
	require.Greater(t, reordered, 1000)
	require.Greater(t, parts, 1000)
}

func runSim(t *testing.T, seed uint64, total int) sim.Counters {
	rng := rand.New(rand.NewPCG(seed, 11))
	var nodes [2]*node
	s, err := channeltest.NewSim(seed, channeltest.Shape{
		SendWR: 1 + rng.IntN(20), RecvWR: rendezvous.MaxAnnounced + 1, Reads: 1 + rng.IntN(8),
		Private: func(rank int, pd transport.PD) ([]byte, error) {
			n := newNode(rank, pd, rendezvous.FetcherConfig{Piece: 1 + rng.IntN(1000), Depth: 1 + rng.IntN(10)})
			n.size = func(rts rendezvous.RTS) int { return max(0, int(rts.Length)+50-rng.IntN(150)) }
			ch, err := channel.New(pd, channel.Default)
			if err != nil {
				return nil, err
			}
			n.ch, nodes[rank] = ch, n
			return ch.Descriptor(), nil
		},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for i, side := range s.Sides {
		require.NoError(t, nodes[i].ch.Open(side.QP, side.Peer))
		nodes[i].poll = side.CQ.Poll
		for range rendezvous.MaxAnnounced + 1 {
			require.NoError(t, side.QP.PostRecv(&transport.RecvWR{}))
		}
	}
	for steps := 1; ; steps++ {
		if steps == 200_000 {
			t.Fatalf("seed %d: no end: %v, %v", seed, nodes[0].check(nodes[1]), nodes[1].check(nodes[0]))
		}
		n := nodes[rng.IntN(2)]
		var err error
		switch rng.IntN(4) {
		case 0:
			if len(n.sources) < total {
				_, err = n.announce(pattern(n.rank, len(n.sources), rng.IntN(1+rng.IntN(3000))), rng.IntN(2) == 0)
			}
		case 1:
			err = n.receive(1 + rng.IntN(5))
		case 2:
			err = n.complete(1 + rng.IntN(5))
		case 3:
			_, err = n.ch.Progress()
			err = errors.Join(err, n.fet.Progress(n.ch))
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if steps%64 == 0 && len(nodes[0].sources)+len(nodes[1].sources) == 2*total &&
			nodes[0].check(nodes[1]) == nil && nodes[1].check(nodes[0]) == nil {
			return s.Counters()
		}
	}
}
