package channel_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/internal/testlength"
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
		tr.ch.RefusePayload(tr.rng.IntN(4) == 0)
		tr.size = []int{usual, 4 + tr.rng.IntN(36)}[tr.rng.IntN(2)]
		if tr.rng.IntN(3) == 0 {
			tr.size = 4 + tr.rng.IntN(tr.ch.MaxBody()-3)
		}
	}
	kind, reserve := channel.Eager, tr.ch.Reserve
	if tr.sent%3 == 0 {
		kind, reserve = channel.RTS, tr.ch.ReserveControl
	}
	if kind == channel.Eager && tr.size >= numberAt+4 && tr.rng.IntN(2) == 0 {
		body := text(tr.rank, tr.sent, tr.size)
		flags := channel.SendFlags(0)
		if tr.rng.IntN(4) == 0 {
			flags = channel.FlagMore
		}
		try := []func(channel.Kind, uint64, []byte, channel.SendFlags) (bool, error){
			tr.ch.TrySend, tr.ch.TrySendSlow,
		}[tr.rng.IntN(2)]
		sent, err := try(kind, word, body[numberAt:], flags)
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
	copy(body, text(tr.rank, tr.sent, tr.size))
	if err := tr.ch.Commit(kind, tr.rng.IntN(2) == 0); err != nil {
		return ignoreFull(err)
	}
	tr.sent++
	tr.size = -1
	return nil
}

// usual is a length that many messages have.
const usual = 32

// Messages begin with a word that is always the same, as long as there is room for their number after it.
const (
	word     = 0x6c61757375656874
	numberAt = 8
)

// text is what message number of a rank consists of.
func text(rank, number, n int) []byte {
	body, at := make([]byte, n), 0
	for i := range body {
		body[i] = pattern(rank, number, i)
	}
	if n >= numberAt+4 {
		binary.LittleEndian.PutUint64(body, word)
		at = numberAt
	}
	binary.LittleEndian.PutUint32(body[at:], uint32(number))
	return body
}

// take receives the next message if its way is the short one, and has room in a buffer of any length.
func (tr *traffic) take() error {
	if tr.rng.IntN(2) == 0 {
		tr.ch.Expect(usual + tr.rng.IntN(2))
	}
	buf := make([]byte, tr.rng.IntN(100))
	if _, ok := tr.ch.TryRecv(channel.Eager, word+1, buf); ok {
		return fmt.Errorf("rank %d: message %d is taken for another", tr.rank, tr.got)
	}
	n, ok := tr.ch.TryRecv(channel.Eager, word, buf)
	if !ok {
		return nil
	}
	if tr.ch.PeerRefusesPayload() {
		return fmt.Errorf("rank %d: message %d has not told that payload may come again", tr.rank, tr.got)
	}
	if want := text(1-tr.rank, tr.got, numberAt+n)[numberAt:]; !bytes.Equal(want, buf[:n]) ||
		len(bytes.Trim(buf[n:], "\x00")) > 0 {
		return fmt.Errorf("rank %d: message %d is %x, and not %x", tr.rank, tr.got, buf, want)
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
		if kind != want || len(body) < 4 {
			return fmt.Errorf("rank %d: message %d is a %v of %d bytes", tr.rank, tr.got, kind, len(body))
		}
		if want := text(1-tr.rank, tr.got, len(body)); !bytes.Equal(want, body) {
			return fmt.Errorf("rank %d: message %d is %x, and not %x", tr.rank, tr.got, body, want)
		}
		tr.got++
		tr.ch.Release()
	}
	return nil
}

// TestSim_E12 sends both ways at once while every Write is placed in pieces and out of order.
func TestSim_E12(t *testing.T) {
	var reordered, parts int
	for seed := range testlength.Of[uint64](80, 20) {
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
		require.Less(t, steps, 2000*total, "seed %d: no progress: %+v %+v", seed, chans[0].Stats(),
			chans[1].Stats())
		i := rng.IntN(2)
		if rng.IntN(2) == 0 {
			s.Sides[i].CQ.Poll(nil)
		}
		require.NoError(t, ranks[i].step(), "seed %d", seed)
	}
	return s.Counters()
}

// TestInline_E12 is the same traffic where Writes are placed at once, in the peer's memory or not, among
// others that are posted.
func TestInline_E12(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for seed := range testlength.Of[uint64](40, 10) {
			p := channeltest.NewPair()
			conf := channel.Config{Phases: []int{192}}
			if seed%2 == 0 {
				conf.Phases = []int{192, 1024} // starved as it is, it grows
			}
			a, b := channeltest.OpenInline(t, p, shared, func(e *channeltest.End) (*channel.Channel,
				error) {
				return channel.New(e.PD(), conf)
			})
			rng := rand.New(rand.NewPCG(seed, 8))
			const total = 3000
			ranks := [2]*traffic{{rank: 0, total: total, ch: a, rng: rng, size: -1},
				{rank: 1, total: total, ch: b, rng: rng, size: -1}}
			for steps := 0; ranks[0].got < total || ranks[1].got < total; steps++ {
				require.Less(t, steps, 100*total, "seed %d: no progress: %+v %+v", seed, a.Stats(), b.Stats())
				r := ranks[rng.IntN(2)]
				if rng.IntN(20) == 0 { // as much as there is room for
					for before := -1; r.sent != before; {
						before = r.sent
						require.NoError(t, r.send(), "seed %d", seed)
						require.NoError(t, p.Drive())
					}
				}
				require.NoError(t, r.step(), "seed %d", seed)
				if rng.IntN(3) == 0 {
					require.NoError(t, p.Drive())
				}
			}
			require.Positive(t, p.A.Inlined, "seed %d", seed)
			require.Positive(t, ranks[0].taken, "seed %d", seed)
		}
	}
}
