package channel_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/sim"
)

// pattern is byte i of message seq from a rank.
func pattern(rank, seq, i int) byte {
	h := uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(seq)*0xbf58476d1ce4e5b9 ^ uint64(i)*0x94d049bb133111eb
	return byte(h >> 32)
}

// traffic is one rank that sends messages of random size and kind, and checks those of its peer.
type traffic struct {
	rank, sent, got, total int
	ch                     *channel.Channel
	rng                    *rand.Rand
	size                   int // of the message that waits; -1 when there is none
	taken                  int // messages received by Take
}

// step does one thing at random.
func (tr *traffic) step() error {
	switch tr.rng.IntN(3) {
	case 0:
		return tr.send()
	case 1:
		return tr.receive()
	default:
		_, err := tr.ch.Progress()
		return err
	}
}

func (tr *traffic) send() error {
	if tr.sent == tr.total {
		return nil
	}
	if tr.size < 0 {
		tr.size = 4 + tr.rng.IntN(36)
		if tr.rng.IntN(3) == 0 {
			tr.size = 4 + tr.rng.IntN(tr.ch.MaxBody()-3)
		}
	}
	kind, reserve := channel.Eager, tr.ch.Reserve
	if tr.sent%3 == 0 {
		kind, reserve = channel.RTS, tr.ch.ReserveControl
	}
	if kind == channel.Eager && tr.size >= 8 && tr.rng.IntN(2) == 0 {
		body := make([]byte, tr.size)
		tr.fill(body)
		sent, err := tr.ch.Put(kind, binary.LittleEndian.Uint64(body), body[8:], tr.rng.IntN(4) == 0)
		if sent {
			tr.sent++
			tr.size = -1
		}
		return err
	}
	body := reserve(tr.size)
	if body == nil {
		return nil
	}
	tr.fill(body)
	if err := tr.ch.Commit(kind, tr.rng.IntN(2) == 0); err != nil {
		return ignoreFull(err)
	}
	tr.sent++
	tr.size = -1
	return nil
}

// fill gives the next message its bytes.
func (tr *traffic) fill(body []byte) {
	binary.LittleEndian.PutUint32(body, uint32(tr.sent))
	for i := 4; i < len(body); i++ {
		body[i] = pattern(tr.rank, tr.sent, i)
	}
}

// take receives the next message if its way is the short one, and has room in a buffer of any length.
func (tr *traffic) take() error {
	var first [8]byte
	binary.LittleEndian.PutUint32(first[:], uint32(tr.got))
	for i := 4; i < len(first); i++ {
		first[i] = pattern(1-tr.rank, tr.got, i)
	}
	if tr.rng.IntN(2) == 0 {
		tr.ch.Expect(tr.rng.IntN(60))
	}
	buf := make([]byte, tr.rng.IntN(100))
	n, ok := tr.ch.Take(channel.Eager, binary.LittleEndian.Uint64(first[:]), buf)
	if !ok {
		return nil
	}
	for i, b := range buf[:n] {
		if b != pattern(1-tr.rank, tr.got, 8+i) {
			return fmt.Errorf("rank %d: message %d, byte %d of %d is wrong", tr.rank, tr.got, 8+i, 8+n)
		}
	}
	for _, b := range buf[n:] {
		if b != 0 {
			return fmt.Errorf("rank %d: message %d, of %d bytes, is followed by some", tr.rank, tr.got, 8+n)
		}
	}
	tr.got++
	tr.taken++
	return nil
}

func (tr *traffic) receive() error {
	for range 1 + tr.rng.IntN(8) {
		if tr.rng.IntN(2) == 0 {
			if err := tr.take(); err != nil {
				return err
			}
		}
		kind, body, ok, err := tr.ch.Next()
		if err != nil || !ok {
			return err
		}
		want := channel.Eager
		if tr.got%3 == 0 {
			want = channel.RTS
		}
		if kind != want || len(body) < 4 || binary.LittleEndian.Uint32(body) != uint32(tr.got) {
			return fmt.Errorf("rank %d: message %d is a %v of %d bytes", tr.rank, tr.got, kind, len(body))
		}
		for i := 4; i < len(body); i++ {
			if body[i] != pattern(1-tr.rank, tr.got, i) {
				return fmt.Errorf("rank %d: message %d, byte %d of %d is wrong", tr.rank, tr.got, i, len(body))
			}
		}
		tr.got++
		tr.ch.Release()
	}
	return nil
}

// TestSim_E12 sends both ways at once while every Write is placed in pieces and out of order.
func TestSim_E12(t *testing.T) {
	var reordered, parts int
	for seed := range uint64(80) {
		c := runSim(t, seed, channel.Config{Phases: []int{192}}, 120)
		reordered += c.Reordered
		parts += c.Split
	}
	require.Greater(t, reordered, 1000)
	require.Greater(t, parts, 1000)
}

func runSim(t *testing.T, seed uint64, cfg channel.Config, total int) sim.Counters {
	rng := rand.New(rand.NewPCG(seed, 7))
	var chans [2]*channel.Channel
	s, err := channeltest.NewSim(seed, channeltest.Shape{
		SendWR: 1 + rng.IntN(40), RecvWR: 1, Reads: 1,
		Private: func(rank int, pd transport.PD) ([]byte, error) {
			ch, err := channel.New(pd, cfg)
			if err != nil {
				return nil, err
			}
			chans[rank] = ch
			return ch.Descriptor(), nil
		},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	var ranks [2]*traffic
	for i, side := range s.Sides {
		require.NoError(t, chans[i].Open(side.QP, side.Peer))
		ranks[i] = &traffic{rank: i, total: total, ch: chans[i], rng: rng, size: -1}
	}
	for steps := 0; ranks[0].got < total || ranks[1].got < total; steps++ {
		require.Less(t, steps, 2000*total, "seed %d: no progress: %+v %+v", seed, chans[0].Stats(), chans[1].Stats())
		i := rng.IntN(2)
		if rng.IntN(2) == 0 {
			s.Sides[i].CQ.Poll(nil)
		}
		require.NoError(t, ranks[i].step(), "seed %d", seed)
	}
	return s.Counters()
}

// TestPlace_E12 is the same traffic where Writes are placed at once, in the peer's memory or not, among others that are posted.
func TestPlace_E12(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for seed := range uint64(40) {
			p := channeltest.NewPair()
			conf := channel.Config{Phases: []int{192}}
			if seed%2 == 0 {
				conf.Phases = []int{192, 1024} // starved as it is, it grows
			}
			a, b := channeltest.OpenPlacing(t, p, shared, func(e *channeltest.End) (*channel.Channel, error) { return channel.New(e.PD(), conf) })
			rng := rand.New(rand.NewPCG(seed, 8))
			const total = 1000
			ranks := [2]*traffic{{rank: 0, total: total, ch: a, rng: rng, size: -1}, {rank: 1, total: total, ch: b, rng: rng, size: -1}}
			for steps := 0; ranks[0].got < total || ranks[1].got < total; steps++ {
				require.Less(t, steps, 100*total, "seed %d: no progress: %+v %+v", seed, a.Stats(), b.Stats())
				require.NoError(t, ranks[rng.IntN(2)].step(), "seed %d", seed)
				if rng.IntN(3) == 0 {
					require.NoError(t, p.Drive())
				}
			}
			require.Positive(t, p.A.Placed, "seed %d", seed)
			require.Positive(t, ranks[0].taken, "seed %d", seed)
		}
	}
}
