package eager_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/channel/channeltest"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
)

// rank sends messages out of random vectors, and puts together and checks those of its peer.
type rank struct {
	number, total int
	seed          uint64
	ch            *channel.Channel
	maxElement    int // bytes of an element

	out   eager.Message
	sent  int
	moved int // bytes of out

	got   int
	begun bool // a message came in part
	in    []byte
}

// vectorOf is message seq of a rank: some elements, empty ones too, mostly small.
func (r *rank) vectorOf(number, seq int) (eager.Envelope, [][]byte) {
	rng := rand.New(rand.NewPCG(r.seed<<8|uint64(number), uint64(seq)))
	var elems [][]byte
	for i := range rng.IntN(7) {
		n := rng.IntN(40)
		switch rng.IntN(6) {
		case 0:
			n = 0
		case 1:
			n = rng.IntN(r.maxElement + 1)
		case 2:
			n = r.maxElement
		}
		elems = append(elems, pattern(number<<20|seq<<4|i, n))
	}
	return eager.Envelope{Context: uint32(number), Tag: int32(seq)}, elems
}

// send goes on with the message under way.
func (r *rank) send(more bool) error {
	if r.sent == r.total {
		return nil
	}
	if r.moved < 0 {
		r.out.Start(r.vectorOf(r.number, r.sent))
		r.moved = 0
	}
	n, o, err := r.out.TrySend(r.ch, sendFlags(more))
	r.moved += n
	switch {
	case err != nil:
		return err
	case o == channel.Done && r.moved == r.out.Total() && r.out.Started() && r.out.Done():
		r.sent, r.moved = r.sent+1, -1
		return nil
	case o == channel.Waiting && r.moved < max(r.out.Total(), 1):
		return nil
	case o == channel.Oversized && n == 0 && !r.out.Started(): // for a FIRST, though a MORE would take it
		_, err := r.out.TrySendHeader(r.ch)
		return err
	}
	return fmt.Errorf("message %d: outcome %d after %d of %d bytes", r.sent, o, r.moved, r.out.Total())
}

// receive takes at most max messages of the channel.
func (r *rank) receive(max int) error {
	for range max {
		kind, body, ok, err := r.ch.Next()
		if err != nil || !ok {
			return err
		}
		if err := r.take(kind, body); err != nil {
			return fmt.Errorf("%v, message %d: %w", kind, r.got, err)
		}
		r.ch.Release()
	}
	return nil
}

func (r *rank) take(kind channel.Kind, body []byte) (err error) {
	wantEnv, elems := r.vectorOf(1-r.number, r.got)
	want := bytes.Join(elems, nil)
	env, total := wantEnv, len(want)
	switch kind {
	case channel.Eager:
		if env, body, err = eager.Parse(body); len(body) != len(want) {
			return fmt.Errorf("%d bytes of %d", len(body), len(want))
		}
	case channel.First:
		env, total, body, err = eager.ParseFirst(body)
	}
	switch {
	case err != nil:
		return err
	case r.begun != (kind == channel.More):
		return errors.New("out of place")
	case env != wantEnv || total != len(want):
		return fmt.Errorf("%+v of %d bytes", env, total)
	case kind == channel.More && len(body) == 0:
		return errors.New("a piece of nothing")
	}
	if r.in = append(r.in, body...); !bytes.HasPrefix(want, r.in) {
		return fmt.Errorf("wrong bytes before %d", len(r.in))
	}
	if r.begun = len(r.in) < len(want); !r.begun {
		r.got, r.in = r.got+1, r.in[:0]
	}
	return nil
}

func (r *rank) step(rng *rand.Rand) error {
	switch rng.IntN(3) {
	case 0:
		return r.send(rng.IntN(2) == 0)
	case 1:
		return r.receive(1 + rng.IntN(6))
	default:
		_, err := r.ch.Progress()
		return err
	}
}

// vectors are the channels over which random vectors go.
var vectors = map[string]struct {
	conf channel.Config
	// what a slot of the last phase takes of an element of a FIRST; one phase has messages that need Open
	maxElement int
}{
	"TheLeastSlots": {channel.Config{Phases: []int{100}}, 76},
	"OnePhase":      {channel.Config{Phases: []int{640}}, 616},
	"TwoPhases":     {channel.Config{Phases: []int{192, 2000}}, 1960},
	"ThreePhases":   {channel.Config{Phases: []int{100, 1000, 5000}, Policy: channel.SumOversized}, 4960},
	"Threshold": {channel.Config{Phases: []int{640, 2000}, ThresholdPercent: 80,
		Policy: channel.LargestElement}, 1600},
	"Whole": {channel.Config{Phases: []int{192, 2000}, Threshold: 20, Whole: true}, 1960},
}

// TestMessage_E2_E4_VectorsComeOutByteByByte sends random vectors both ways at once, whatever queue is full
// and whatever the channel is about.
func TestMessage_E2_E4_VectorsComeOutByteByByte(t *testing.T) {
	for name, c := range vectors {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(12) {
				rng := rand.New(rand.NewPCG(seed, 3))
				l := open(t, c.conf)
				l.A.Depth, l.B.Depth = 1+rng.IntN(8), 1+rng.IntN(8)
				ranks := [2]*rank{{ch: l.a}, {ch: l.b, number: 1}}
				for _, r := range ranks {
					r.total, r.seed, r.maxElement, r.moved = 40, seed, c.maxElement, -1
				}
				for steps := 0; ranks[0].got < 40 || ranks[1].got < 40; steps++ {
					require.Less(t, steps, 100_000, "seed %d: no end", seed)
					err := ranks[rng.IntN(2)].step(rng)
					if err == nil && rng.IntN(3) == 0 {
						err = l.Drive()
					}
					require.NoError(t, err, "seed %d", seed)
				}
				require.Equal(t, len(c.conf.Phases) > 1, l.a.Phase() > 0 && l.a.Stats().EnlargesGranted > 0)
			}
		})
	}
}

// TestSim_E2_E4_VectorsComeOutByteByByte does so over a network that places everything in pieces and in any
// order.
func TestSim_E2_E4_VectorsComeOutByteByByte(t *testing.T) {
	for name, c := range vectors {
		t.Run(name, func(t *testing.T) {
			reordered := 0
			for seed := range uint64(5) {
				rng := rand.New(rand.NewPCG(seed, 4))
				var ranks [2]*rank
				s, err := channeltest.NewSim(seed, channeltest.Shape{
					SendWR: 2 + rng.IntN(30), RecvWR: 1, Reads: 1,
					Private: func(number int, pd transport.PD) ([]byte, error) {
						ch, err := channel.New(pd, c.conf)
						if err != nil {
							return nil, err
						}
						ranks[number] = &rank{number: number, total: 25, seed: seed, ch: ch, maxElement: c.maxElement,
							moved: -1}
						return ch.Descriptor(), nil
					},
				})
				require.NoError(t, err)
				for i, side := range s.Sides {
					require.NoError(t, ranks[i].ch.Open(side.QP, side.Peer))
				}
				for steps := 0; ranks[0].got < 25 || ranks[1].got < 25; steps++ {
					require.Less(t, steps, 200_000, "seed %d: no end", seed)
					i := rng.IntN(2)
					s.Sides[i].CQ.Poll(nil)
					require.NoError(t, ranks[i].step(rng), "seed %d", seed)
				}
				reordered += s.Counters().Reordered
				require.NoError(t, s.Close())
			}
			require.Positive(t, reordered)
		})
	}
}

// TestGolden_Message are messages out of vectors on a channel that cannot grow, and on one that can.
func TestGolden_Message(t *testing.T) {
	small, part := []byte("small "), func(n int) []byte {
		return bytes.Repeat([]byte("0123456789"),
			n/10+1)[:n]
	}
	type message struct {
		what  string
		elems [][]byte
	}
	for _, c := range []struct {
		name     string
		phases   []int
		messages []message
	}{
		{"one-phase", []int{192}, []message{
			{"no elements", nil},
			{"empty elements alone", [][]byte{{}, nil}},
			{"all in a slot, empty ones between", [][]byte{{}, small, {}, part(60), {}}},
			{"as much in each slot as fits, and nothing after the last byte",
				[][]byte{small, part(140), {}, part(168), {}, small, {}, {}}},
			{"more than the credits: it goes on when they come", [][]byte{
				part(100), part(160), part(160), part(160), part(160), part(160), part(160), part(160),
				part(160), part(160),
				part(160), part(160), part(160), part(160), part(160), part(160), part(160), part(160),
				part(160), small,
			}},
		}},
		{"two-phases", []int{192, 1000}, []message{
			{"it fits the small slots", [][]byte{small, part(140), small}},
			{"a later element is too large: those before it go, then it asks for larger slots",
				[][]byte{small, small, part(500), part(400), small}},
			{"they are there now", [][]byte{part(900), part(60)}},
		}},
		{"first-too-large", []int{192, 1000}, []message{
			{"nothing goes before the larger slots are there", [][]byte{part(500), part(600), small}},
		}},
		{"empty-first", []int{192, 1000}, []message{
			{"an empty element is one that fits: it opens the message", [][]byte{{}, part(500), part(600)}},
		}},
		{"one-element", []int{192, 1000}, []message{
			{"of a single element nothing goes before it can go whole", [][]byte{part(161)}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := open(t, channel.Config{Phases: c.phases})
			var tr channeltest.Transcript
			tr.Record(l.Pair, l.a.Descriptor(), l.b.Descriptor())
			for seq, msg := range c.messages {
				tr.Say("%s", msg.what)
				env := eager.Envelope{Context: 1, Tag: int32(seq)}
				var m eager.Message
				var got []byte
				for m.Start(env, msg.elems); !m.Started() || !m.Done(); {
					n, o, err := m.TrySend(l.a, 0)
					require.NoError(t, err)
					tr.Say("%d bytes: %s", n, map[channel.Outcome]string{channel.Done: "done",
						channel.Waiting: "waiting"}[o])
					require.NoError(t, l.Drive())
					for {
						kind, body, ok, err := l.b.Next()
						require.NoError(t, err)
						if !ok {
							break
						}
						switch kind {
						case channel.Eager:
							_, body, err = eager.Parse(body)
						case channel.First:
							_, _, body, err = eager.ParseFirst(body)
						}
						require.NoError(t, err)
						got = append(got, body...)
						l.b.Release()
					}
					l.turn(t, l.a)
					l.turn(t, l.a)
				}
				require.Equal(t, string(bytes.Join(msg.elems, nil)), string(got))
				require.Equal(t, len(got), m.Total())
			}
			tr.Golden(t, c.name)
		})
	}
}

// TestMessage_E3_OversizedIsForRendezvous, and nothing of it has gone.
func TestMessage_E3_OversizedIsForRendezvous(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	for _, c := range []struct {
		elems []int
		moved int // before it
	}{
		{[]int{161}, 0}, {[]int{153, 1000}, 0}, {[]int{0, 169}, 0}, {[]int{10, 169}, 10},
		{[]int{10, 168, 0, 169, 1}, 178},
	} {
		var elems [][]byte
		for i, n := range c.elems {
			elems = append(elems, pattern(i, n))
		}
		var m eager.Message
		m.Start(eager.Envelope{}, elems)
		n, o, err := m.TrySend(l.a, 0)
		require.NoError(t, err)
		require.Equal(t, channel.Oversized, o)
		require.Equal(t, c.moved, n)
		sent := l.a.Stats().Sent
		n, o, err = m.TrySend(l.a, 0)
		require.NoError(t, err)
		require.Equal(t, channel.Oversized, o)
		require.Zero(t, n)
		require.Equal(t, sent, l.a.Stats().Sent)
		require.Greater(t, len(m.Front()), 152)
		require.NoError(t, l.Drive())
		require.NoError(t, drain(l.b))
		l.turn(t, l.a)
	}
	require.Zero(t, l.a.Stats().EnlargesSent)
}

// drain takes what is there.
func drain(c *channel.Channel) error {
	for {
		_, _, ok, err := c.Next()
		if err != nil || !ok {
			return err
		}
		c.Release()
	}
}

// TestMessage_NoAllocationInSteadyState: vectors in slots of their own size, and in larger ones that a
// channel has grown to.
func TestMessage_NoAllocationInSteadyState(t *testing.T) {
	for _, phases := range [][]int{{192}, {192, 1000}} {
		l := open(t, channel.Config{Phases: phases})
		elems := [][]byte{pattern(1, 30), nil, pattern(2, 150), pattern(3, 168*len(phases)), pattern(4, 1)}
		var m eager.Message
		round := func() {
			n, o := 0, channel.Waiting
			for m.Start(eager.Envelope{Tag: 2}, elems); o != channel.Done; {
				k, outcome, err := m.TrySend(l.a, 0)
				n, o = n+k, outcome
				if o == channel.Oversized || errors.Join(err, l.Drive(), drain(l.b)) != nil {
					t.Fatal(o, err)
				}
				if _, err := l.b.Progress(); err != nil || errors.Join(l.Drive(), drain(l.a)) != nil {
					t.Fatal(err)
				}
			}
			if n != m.Total() {
				t.Fatal(n)
			}
		}
		round() // it grows
		require.Zero(t, testing.AllocsPerRun(300, round))
		require.Equal(t, len(phases)-1, l.a.Phase())
	}
}

// FuzzFirst: what is accepted is what Message writes, with a length that is not below what has come of it.
func FuzzFirst(f *testing.F) {
	first := func(context, tag uint32, total uint64, payload string) []byte {
		b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, context), tag)
		return append(binary.LittleEndian.AppendUint64(b, total), payload...)
	}
	f.Add([]byte{})
	f.Add(first(1, 2, 3, "abc")[:15])
	f.Add(first(1, 2, 3, "abc"))
	f.Add(first(1, 2, 3, "abcd"))
	f.Add(first(math.MaxUint32, math.MaxInt32, 1<<46, ""))
	f.Add(first(1, 1<<31, 3, "abc"))
	f.Add(first(1, 2, 1<<46+1, "abc"))
	f.Add(first(1, 2, math.MaxUint64, "abc"))
	f.Fuzz(func(t *testing.T, body []byte) {
		env, total, payload, err := eager.ParseFirst(body)
		if len(body) < 16 || body[7] >= 0x80 || binary.LittleEndian.Uint64(body[8:]) > 1<<46 ||
			binary.LittleEndian.Uint64(body[8:]) < uint64(len(body)-16) {
			require.ErrorIs(t, err, transport.ErrProtocol)
			return
		}
		require.NoError(t, err)
		require.Equal(t, body, first(env.Context, uint32(env.Tag), uint64(total), string(payload)))
	})
}

// TestOpen_E4_LeavesNoPieceOfNothing: after a FIRST without payload no MORE goes for the empty elements at
// the front of the vector.
func TestOpen_E4_LeavesNoPieceOfNothing(t *testing.T) {
	l := open(t, channel.Config{Phases: []int{192}})
	for _, elems := range [][][]byte{{{}, nil, pattern(0, 500)}, {{}, pattern(0, 160), pattern(1, 160)},
		{pattern(0, 160), {}, pattern(1, 160), nil}} {
		var m eager.Message
		m.Start(eager.Envelope{}, elems)
		opened, err := m.TrySendHeader(l.a)
		require.NoError(t, err)
		require.True(t, opened && m.Started() && !m.Done())
		require.NotEmpty(t, m.Front())
		_, _, err = m.TrySend(l.a, 0)
		require.NoError(t, err)
		require.NoError(t, l.Drive())
		for first := true; ; first = false {
			kind, body, ok, err := l.b.Next()
			require.NoError(t, err)
			if !ok {
				break
			}
			require.Equal(t, first, kind == channel.First)
			require.Equal(t, first, len(body) == 16)
			l.b.Release()
		}
		l.turn(t, l.a)
	}
}
