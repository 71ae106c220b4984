package rendezvous_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// courier is one rank that sends messages out of vectors, through slots what fits them and announced what
// does not, and puts those of its peer together in buffers that are cut otherwise.
type courier struct {
	*node
	vector func(rank, seq int) [][]byte
	total  int // messages to send

	out     eager.Message
	sending bool
	sent    int
	kinds   map[channel.Kind]int // of what came

	in    []*incoming
	begun bool // the last one has not all come, or been announced
}

// incoming is a message from the peer.
type incoming struct {
	total, at int
	buf       []byte
	bufs      [][]byte // the same, cut
}

// send goes on with the message under way.
func (c *courier) send(more bool) error {
	m := &c.out
	if !c.sending {
		if c.sent == c.total {
			return nil
		}
		m.Start(eager.Envelope{Context: 1, Tag: int32(c.sent)}, c.vector(c.rank, c.sent))
		c.sending = true
	}
	if !c.ch.PeerRefusesPayload() || m.Total() == 0 {
		_, o, err := m.TrySend(c.ch, sendFlags(more))
		switch {
		case err != nil:
			return err
		case o == channel.Done:
			c.sent, c.sending = c.sent+1, false
			return nil
		case o == channel.Waiting:
			return nil
		}
	}
	return c.announceFront(more)
}

// announceFront announces the front element of the message under way, after a beginning if it needs one.
func (c *courier) announceFront(more bool) (err error) {
	m, ok, token := &c.out, false, uint64(len(c.finished))
	switch {
	case !m.Started() && len(m.Elems) == 1:
		if _, ok, err = c.snd.TrySendRTS(c.ch, m.Envelope, m.Front(), token, more); ok {
			m.MarkStarted()
		}
	case !m.Started():
		_, err = m.TrySendHeader(c.ch)
		return err
	default:
		_, ok, err = c.snd.TrySendPiece(c.ch, m.Front(), token, more)
	}
	if ok {
		c.sources, c.finished = append(c.sources, m.Front()), append(c.finished, 0)
		c.maxOpen = max(c.maxOpen, c.snd.Outstanding(c.ch))
		if m.Skip(); m.Done() {
			c.sent, c.sending = c.sent+1, false
		}
	}
	return err
}

// receive takes at most max messages of the channel.
func (c *courier) receive(max int) error {
	return c.each(max, func(kind channel.Kind, body []byte) error {
		if err := c.take(kind, body); err != nil {
			return fmt.Errorf("%v, message %d: %w", kind, len(c.in), err)
		}
		c.kinds[kind]++
		c.ch.Release()
		return nil
	})
}

func (c *courier) take(kind channel.Kind, body []byte) (err error) {
	if c.begun != (kind == channel.More || kind == channel.Piece) {
		return errors.New("out of place")
	}
	env, total := eager.Envelope{}, 0
	var source *rendezvous.Source
	switch kind {
	case channel.Eager:
		env, body, err = eager.Parse(body)
		total = len(body)
	case channel.First:
		env, total, body, err = eager.ParseFirst(body)
	case channel.RTS:
		var rts rendezvous.RTS
		rts, err = rendezvous.ParseRTS(body)
		env, total, source = eager.Envelope{Context: rts.Context, Tag: rts.Tag}, int(rts.Length), &rts.Source
	case channel.Piece:
		var s rendezvous.Source
		s, err = rendezvous.ParseSource(body)
		source = &s
	}
	if err != nil {
		return err
	}
	if kind == channel.More && len(body) == 0 || kind == channel.Piece && source.Length == 0 {
		return errors.New("a piece of nothing")
	}
	if !c.begun {
		if want := (eager.Envelope{Context: 1, Tag: int32(len(c.in))}); env != want {
			return fmt.Errorf("%+v", env)
		}
		buf := make([]byte, c.size(rendezvous.RTS{Source: rendezvous.Source{Length: uint64(total)}}))
		c.in = append(c.in, &incoming{total: total, buf: buf, bufs: c.bufs(buf)})
	}
	m := c.in[len(c.in)-1]
	if source == nil {
		copy(m.buf[min(m.at, len(m.buf)):], body)
		m.at += len(body)
	} else if err := c.fetch(m, *source); err != nil {
		return err
	}
	if c.begun = m.at < m.total; m.at > m.total {
		return fmt.Errorf("%d bytes came of %d", m.at, m.total)
	}
	return nil
}

// fetch begins to read what was announced into what is left of the buffers.
func (c *courier) fetch(m *incoming, s rendezvous.Source) error {
	var rest [][]byte
	skip := m.at
	for _, b := range m.bufs {
		n := min(skip, len(b))
		skip -= n
		rest = append(rest, b[n:])
	}
	m.at += int(s.Length)
	c.fetched = append(c.fetched, 0)
	token := len(c.fetched) - 1
	done, err := c.rcv.Start(c.ch, s, rest, uint64(token))
	clear(rest) // the slice is ours again
	if done {
		c.fetched[token]++
	}
	return err
}

// check tells what is wrong with what has come from a peer that has sent all.
func (c *courier) check(peer *courier) error {
	if len(c.in) != peer.total || c.begun {
		return fmt.Errorf("%d messages came of %d", len(c.in), peer.total)
	}
	for token, times := range c.fetched {
		if times != 1 {
			return fmt.Errorf("fetch %d ended %d times", token, times)
		}
	}
	for token, times := range c.finished {
		if times != 1 {
			return fmt.Errorf("announcement %d ended %d times", token, times)
		}
	}
	for seq, m := range c.in {
		want := bytes.Join(peer.vector(peer.rank, seq), nil)
		n := min(len(want), len(m.buf))
		if m.total != len(want) || !bytes.Equal(m.buf[:n], want[:n]) {
			return fmt.Errorf("message %d of %d bytes is wrong", seq, m.total)
		}
		if !bytes.Equal(m.buf[n:], make([]byte, len(m.buf)-n)) {
			return fmt.Errorf("after message %d something was written", seq)
		}
	}
	if open := c.snd.Outstanding(c.ch); open > 0 {
		return fmt.Errorf("%d announcements are open", open)
	}
	return c.checkRecvs()
}

// step does one thing at random.
func (c *courier) step(rng *rand.Rand) error {
	switch rng.IntN(5) {
	case 0, 1:
		if rng.IntN(30) == 0 {
			c.ch.RefusePayload(rng.IntN(3) == 0)
		}
		return c.send(rng.IntN(2) == 0)
	case 2:
		return c.receive(1 + rng.IntN(5))
	case 3:
		return c.complete(1 + rng.IntN(5))
	default:
		_, err := c.ch.Progress()
		return errors.Join(err, c.progress())
	}
}

// couriers makes couriers of two nodes. Vectors and buffers follow from the seed.
func couriers(nodes [2]*node, seed uint64, total int, phases []int) (both [2]*courier) {
	rng := rand.New(rand.NewPCG(seed, 21))
	vector := func(rank, seq int) (elems [][]byte) {
		rng := rand.New(rand.NewPCG(seed<<8|uint64(rank), uint64(seq)))
		for i := range rng.IntN(6) {
			n := rng.IntN(40)
			switch rng.IntN(6) {
			case 0:
				n = 0
			case 1:
				n = rng.IntN(phases[0])
			case 2:
				n = phases[len(phases)-1] - 30 + rng.IntN(300)
			}
			elems = append(elems, pattern(rank, seq<<4|i, n))
		}
		return elems
	}
	for i, n := range nodes {
		n.size = func(rts rendezvous.RTS) int { return max(0, int(rts.Length)+60-rng.IntN(150)) }
		n.cut = cutter(rng)
		both[i] = &courier{node: n, vector: vector, total: total, kinds: map[channel.Kind]int{}}
	}
	return both
}

var phases = map[string][]int{"OnePhase": {192}, "TwoPhases": {100, 1000}}

// TestVector_R1_E4_InSlotsAndAnnounced sends random vectors both ways at once, whatever queue is full, while
// a peer at times holds what it is sent back: slots and announcements of one message come together in the
// receiver's buffers.
func TestVector_R1_E4_InSlotsAndAnnounced(t *testing.T) {
	for name, phases := range phases {
		t.Run(name, func(t *testing.T) {
			ways(t, func(t *testing.T, grant bool) {
				kinds := map[channel.Kind]int{}
				for seed := range testlength.Of[uint64](40, 10) {
					rng := rand.New(rand.NewPCG(seed, 22))
					l := openPhases(t, phases, rendezvous.ReceiverConfig{Piece: 1 + rng.IntN(150),
						Depth: 1 + rng.IntN(6), Grant: grant})
					l.A.Depth, l.B.Depth = 1+rng.IntN(12), 1+rng.IntN(12)
					both := couriers([2]*node{l.a, l.b}, seed, 30, phases)
					for steps := 0; steps%64 > 0 || both[0].check(both[1]) != nil ||
						both[1].check(both[0]) != nil; steps++ {
						if steps == 100_000 {
							t.Fatalf("seed %d: no end: %v, %v", seed, both[0].check(both[1]),
								both[1].check(both[0]))
						}
						err := both[rng.IntN(2)].step(rng)
						if err == nil && rng.IntN(3) == 0 {
							err = l.Drive()
						}
						require.NoError(t, err, "seed %d", seed)
					}
					for _, c := range both {
						for kind, n := range c.kinds {
							kinds[kind] += n
						}
					}
					l.close(t)
				}
				for _, kind := range []channel.Kind{channel.Eager, channel.RTS, channel.First, channel.More,
					channel.Piece} {
					require.Greater(t, kinds[kind], testlength.Of(100, 25), "%v", kind)
				}
			})
		})
	}
}

// TestSim_R1_E4_VectorsInSlotsAndAnnounced does so over a network that places everything in pieces and in any
// order.
func TestSim_R1_E4_VectorsInSlotsAndAnnounced(t *testing.T) { ways(t, vectorsInSim) }

func vectorsInSim(t *testing.T, grant bool) {
	reordered := 0
	for seed := range testlength.Of[uint64](12, 3) {
		rng := rand.New(rand.NewPCG(seed, 23))
		s, nodes := newSim(t, seed, rng, grant)
		both := couriers(nodes, seed, 15, channel.DefaultPhases)
		for steps := 0; steps%64 > 0 || both[0].check(both[1]) != nil ||
			both[1].check(both[0]) != nil; steps++ {
			if steps == 300_000 {
				t.Fatalf("seed %d: no end: %v, %v", seed, both[0].check(both[1]), both[1].check(both[0]))
			}
			require.NoError(t, both[rng.IntN(2)].step(rng), "seed %d", seed)
		}
		reordered += s.Counters().Reordered
		require.NoError(t, s.Close())
	}
	require.Positive(t, reordered)
}

// TestFail_OfVectorsInEachState cuts the connection after every number of steps of such a run: each token
// comes back exactly once, and nothing stays registered.
func TestFail_OfVectorsInEachState(t *testing.T) { ways(t, failVectors) }

func failVectors(t *testing.T, grant bool) {
	lost := errors.New("cut")
	announced, reading := 0, 0
	for cut := 0; cut < 900; cut += 1 + cut/100 {
		rng := rand.New(rand.NewPCG(uint64(cut%7), 24))
		l := openPhases(t, []int{100, 1000}, rendezvous.ReceiverConfig{Piece: 50, Depth: 3, Grant: grant})
		l.A.Depth, l.B.Depth = 6, 6
		both := couriers([2]*node{l.a, l.b}, uint64(cut%7), 30, []int{100, 1000})
		for range cut {
			require.NoError(t, both[rng.IntN(2)].step(rng))
			if rng.IntN(3) == 0 {
				require.NoError(t, l.Drive())
			}
		}
		l.A.Abort(lost)
		for _, c := range both {
			require.NoError(t, c.snd.Fail(c.ch, func(token uint64) { c.finished[token]++; announced++ }))
			require.NoError(t, c.rcv.Fail(c.ch, func(token uint64) { c.fetched[token]++; reading++ }))
			for _, times := range [][]int{c.finished, c.fetched} {
				for token, k := range times {
					require.Equal(t, 1, k, "cut after %d steps: token %d", cut, token)
				}
			}
			require.NoError(t, c.ch.Fail(lost))
		}
		require.Zero(t, l.A.Regions()+l.B.Regions(), "cut after %d steps", cut)
	}
	require.Greater(t, announced, 200)
	require.Greater(t, reading, 100)
}

// TestGolden_Vector are messages whose elements go through slots and are announced in turn.
func TestGolden_Vector(t *testing.T) {
	text := func(n int) []byte { return bytes.Repeat([]byte("0123456789"), n/10+1)[:n] }
	for _, c := range []struct {
		name, what string
		elems      [][]byte
		hold       bool
		cuts       []int
		grant      bool
	}{
		{"vector", "pieces in slots and announced ones take turns",
			[][]byte{[]byte("head "), text(300), []byte("between "), {}, text(200), []byte("tail")},
			false, []int{1000}, false},
		{"vector-opens", "the first element is announced: FIRST goes without payload",
			[][]byte{text(300), text(10)}, false, []int{1000}, false},
		{"vector-cut", "three buffers, of which one is empty, take 150 bytes of 305",
			[][]byte{[]byte("head "), text(300)}, false, []int{60, 0, 90}, false},
		{"vector-held", "the receiver refuses payload: all is announced, but for empty elements",
			[][]byte{{}, {}, text(10), {}, text(5), {}}, true, []int{12, 3}, false},
		{"vector-granted", "a piece into three buffers, of which one is empty: 145 bytes of 300",
			[][]byte{[]byte("head "), text(300), []byte("tail")}, false,
			[]int{60, 0, 90}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := openPhases(t, []int{192}, rendezvous.ReceiverConfig{Piece: 150, Grant: c.grant})
			vector := func(rank, _ int) [][]byte { return c.elems }
			a := &courier{node: l.a, vector: vector, total: 1, kinds: map[channel.Kind]int{}}
			b := &courier{node: l.b, vector: vector, kinds: map[channel.Kind]int{}}
			b.size = func(rendezvous.RTS) (n int) {
				for _, k := range c.cuts {
					n += k
				}
				return n
			}
			b.cut = func(buf []byte) (bufs [][]byte) {
				for _, k := range c.cuts {
					bufs, buf = append(bufs, buf[:k]), buf[k:]
				}
				return bufs
			}
			l.record()
			l.Say("%s", c.what)
			if c.hold {
				b.ch.RefusePayload(true)
				sent, err := b.ch.TrySend(channel.Eager, 0, nil, 0)
				require.NoError(t, err)
				require.True(t, sent)
				require.NoError(t, l.Drive())
				_, _, ok, err := a.ch.Next()
				require.NoError(t, err)
				require.True(t, ok)
				a.ch.Release()
			}
			for a.sent == 0 {
				require.NoError(t, a.send(false))
			}
			for pass := 1; a.check(b) != nil || b.check(a) != nil; pass++ {
				require.Less(t, pass, 20)
				l.Say("pass %d", pass)
				require.NoError(t, l.Drive())
				for _, x := range []*courier{b, a} {
					require.NoError(t, x.receive(10))
					require.NoError(t, x.complete(10))
				}
			}
			l.Golden(t, c.name)
			l.close(t)
		})
	}
}

// TestVector_NoAllocationInSteadyState: a beginning, a piece through a slot, one announced and read into
// three buffers.
func TestVector_NoAllocationInSteadyState(t *testing.T) {
	l := openPhases(t, []int{192}, rendezvous.ReceiverConfig{Piece: 70})
	elems := [][]byte{pattern(0, 0, 20), pattern(0, 1, 300), pattern(0, 2, 5)}
	dst := make([]byte, 325)
	copy(dst, elems[0])
	copy(dst[320:], elems[2])
	bufs := [][]byte{dst[20:100], nil, dst[100:120], dst[120:320]}
	var m eager.Message
	round := func() {
		m.Start(eager.Envelope{Tag: 3}, elems)
		n, o, err := m.TrySend(l.a.ch, channel.FlagMore)
		if n != 20 || o != channel.Oversized || err != nil {
			t.Fatal(n, o, err)
		}
		_, ok, err := l.a.snd.TrySendPiece(l.a.ch, m.Front(), 5, true)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		m.Skip()
		n, o, err = m.TrySend(l.a.ch, 0)
		if n != 5 || o != channel.Done || err != nil {
			t.Fatal(n, o, err)
		}
		must(t, l.Drive())
		for {
			kind, body, ok, err := l.b.ch.Next()
			must(t, err)
			if !ok {
				break
			}
			if kind == channel.Piece {
				s, err := rendezvous.ParseSource(body)
				must(t, err)
				_, err = l.b.rcv.Start(l.b.ch, s, bufs, 6)
				must(t, err)
			}
			l.b.ch.Release()
		}
		l.readAndFinished(t, 6, 5)
	}
	require.Zero(t, testing.AllocsPerRun(300, round))
	require.Equal(t, bytes.Join(elems, nil), dst)
	l.close(t)
}

// poor is a protection domain that has memory for so many regions more.
type poor struct {
	transport.PD
	left int
}

func (p *poor) Register(buf []byte, access transport.Access) (transport.MR, error) {
	if p.left == 0 {
		return nil, errors.New("no memory")
	}
	p.left--
	return p.PD.Register(buf, access)
}

// TestRegister_ThatFails leaves nothing behind: no region, no announcement, and the Recv is there for the
// next one.
func TestRegister_ThatFails(t *testing.T) {
	l := open(t, rendezvous.ReceiverConfig{})
	a, b := &poor{PD: l.A.PD()}, &poor{PD: l.B.PD()}
	l.a.snd, l.b.rcv = rendezvous.NewSender(a, rendezvous.SenderConfig{}),
		rendezvous.NewReceiver(b, rendezvous.ReceiverConfig{})
	for range 3 {
		ok, err := l.a.announce(pattern(0, 0, 50), false)
		require.ErrorContains(t, err, "send buffer of 50 bytes: no memory")
		require.False(t, ok)
		require.Equal(t, 1, l.a.recvs)
		require.Zero(t, l.a.snd.Outstanding(l.a.ch))
	}
	bufs := [][]byte{make([]byte, 20), make([]byte, 20), make([]byte, 20)}
	for i, size := range []int{20, 20, 10} {
		b.left = i
		done, err := l.b.rcv.Start(l.b.ch, rendezvous.Source{ID: 1, Key: 1, Length: 50}, bufs, 7)
		require.ErrorContains(t, err, fmt.Sprintf("receive buffer of %d bytes: no memory", size))
		require.False(t, done)
		require.Equal(t, 2, l.B.Regions())
		require.NoError(t, l.b.rcv.Fail(l.b.ch, func(uint64) { t.Fatal("the token comes back") }))
	}
	a.left, b.left = 1, 1
	ok, err := l.a.announce(pattern(0, 0, 50), false)
	require.NoError(t, err)
	require.True(t, ok)
	l.settle(t, false)
	l.close(t)
}
