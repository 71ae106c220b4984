package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
	"github.com/weft-mpi/weft/transport"
)

// lanesOf are the lanes of a side.
func (s *side) lanesOf() *multiLane { return lanesOf(s.to) }

// lanesOf is what carries a queue pair over lanes; nil where a connection is alone.
func lanesOf(q transport.QP) *multiLane {
	b, _ := q.(*qp).sequencer.(*multiLane)
	return b
}

// firstLink is the connection of a queue pair, or the first of its lanes. Without any it is an empty one.
func firstLink(q transport.QP) *conn {
	if b := lanesOf(q); b != nil {
		if len(b.conns) == 0 {
			return new(conn)
		}
		return &b.conns[0].conn
	}
	return &q.(*qp).sequencer.(*singleLink).conn
}

// noise has random bytes: parts of it are copied and compared far faster than bytes made one by one.
var noise = func() []byte {
	list := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(list) // never fails
	return list
}()

// piece is a part of what one request of the traffic below moves, which depends on who sends it and on its number.
func piece(rank int, seq uint64, number int) []byte {
	x := uint64(rank+1)*0x9e3779b97f4a7c15 + seq*0xbf58476d1ce4e5b9 + uint64(number)*0x94d049bb133111eb
	return noise[(x>>32)%uint64(len(noise)/2):][:len(noise)/2]
}

func stretch(b []byte, rank int, seq uint64) {
	for number := 0; len(b) > 0; number++ {
		b = b[copy(b, piece(rank, seq, number)):]
	}
}

// same tells the first byte that is not as it was sent, or -1.
func same(b []byte, rank int, seq uint64) int {
	for from := 0; from < len(b); from += len(noise) / 2 {
		p := piece(rank, seq, from/(len(noise)/2))
		if i := sameAt(b[from:min(from+len(p), len(b))], p); i >= 0 {
			return from + i
		}
	}
	return -1
}

// traffic is a stream of requests of every kind from one side to the other. Each uses a slot of the memory of
// both, which is used again at once when its completion is there: so a byte that is placed late shows.
type traffic struct {
	tb       testing.TB
	rank     int
	me, peer *side
	random   *rand.Rand
	src, dst transport.MR // slots here, and there
	back     transport.MR // where Reads and Atomics put what they get
	word     transport.MR // there: changed by Atomics
	fetched  transport.MR // there: read by Reads; of the peer's pattern
	posted   uint64
	done     uint64
	told     uint64 // immediates and Sends that the peer has been told of
	adds     uint64
	size     int                // of a slot
	kinds    []transport.Opcode // of the requests that are under way, by number
	lengths  []int
	recvs    uint64 // posted at the peer
	got      uint64 // messages that have come there
	messages []uint64
	pending  [trafficSlots]bool // a message that has not come yet uses it
}

const trafficSlots = 16

func newTraffic(tb testing.TB, rank int, me, peer *side, seed uint64, size int) *traffic {
	t := &traffic{size: size, tb: tb, rank: rank, me: me, peer: peer,
		random: rand.New(rand.NewPCG(seed, uint64(rank)))}
	alloc := func(pd transport.PD, n int) transport.MR {
		m, err := pd.Alloc(n,
			transport.LocalWrite|transport.RemoteRead|transport.RemoteWrite|transport.RemoteAtomic)
		require.NoError(tb, err)
		return m
	}
	t.src, t.dst = alloc(me.pd, trafficSlots*size), alloc(peer.pd, trafficSlots*size)
	t.back, t.fetched, t.word = alloc(me.pd, trafficSlots*size), alloc(peer.pd, size), alloc(peer.pd, 8)
	stretch(t.fetched.Bytes(), 7, 7)
	t.kinds, t.lengths = make([]transport.Opcode, trafficSlots), make([]int, trafficSlots)
	t.messages = make([]uint64, trafficSlots)
	return t
}

func (t *traffic) length() int {
	switch t.random.IntN(8) {
	case 0:
		return 8
	case 1:
		return 1 + t.random.IntN(t.size)
	case 2:
		return t.size - t.random.IntN(64)
	}
	return 1 + t.random.IntN(4096)
}

// post posts one request, if there is room for it.
func (t *traffic) post() {
	if t.posted-t.done == trafficSlots || t.pending[t.posted%trafficSlots] {
		return
	}
	seq := t.posted
	slot := int(seq % trafficSlots)
	n := t.length()
	at := slot * t.size
	local := []transport.SGE{{MR: t.src, Offset: at, Length: n}}
	remote := []transport.Segment{{Key: t.dst.Key(), Offset: uint64(at), Length: uint64(n)}}
	wr := transport.SendWR{ID: seq<<8 | uint64(t.rank), Flags: transport.FlagSignaled, Local: local}
	switch k := t.random.IntN(8); k {
	case 0, 1, 2:
		wr.Op, wr.Remote, wr.Imm = transport.OpWriteImm, remote, uint32(seq)
	case 3, 4:
		wr.Op = transport.OpSend
	case 5, 6:
		wr.Op = transport.OpRead
		wr.Local[0].MR = t.back
		wr.Remote = []transport.Segment{{Key: t.fetched.Key(), Length: uint64(n)}}
	case 7:
		n = 8
		wr.Op, wr.Operand = transport.OpFetchAdd, 1
		wr.Local[0] = transport.SGE{MR: t.back, Offset: at, Length: 8}
		wr.Remote = []transport.Segment{{Key: t.word.Key(), Length: 8}}
	}
	if wr.Op == transport.OpSend || wr.Op == transport.OpWriteImm {
		if t.recvs-t.got == trafficSlots {
			return
		}
		t.messages[t.recvs%trafficSlots], t.pending[slot] = seq, true
		require.NoError(t.tb, t.peer.to.PostRecv(&transport.RecvWR{ID: t.recvs<<8 | 0x80 | uint64(t.rank),
			Local: []transport.SGE{{MR: t.dst, Offset: at, Length: t.size}}}))
		t.recvs++
		stretch(t.src.Bytes()[at:at+n], t.rank, seq)
		clear(t.dst.Bytes()[at : at+n])
	} else {
		clear(t.back.Bytes()[at : at+n])
	}
	t.kinds[slot], t.lengths[slot] = wr.Op, n
	require.NoError(t.tb, t.me.to.PostSend(&wr))
	t.posted++
}

// completed takes a completion of this side's request: in order, once, and with its bytes.
func (t *traffic) completed(wc transport.WC) {
	require.NoError(t.tb, wc.Err)
	seq := wc.ID >> 8
	slot := int(seq % trafficSlots)
	require.Equal(t.tb, t.done, seq, "requests complete in order")
	at, n := slot*t.size, t.lengths[slot]
	require.Equal(t.tb, t.kinds[slot], wc.Op)
	switch wc.Op {
	case transport.OpRead:
		if i := sameAt(t.back.Bytes()[at:at+n], t.fetched.Bytes()); i >= 0 {
			t.tb.Fatalf("byte %d of %d of Read %d", i, n, seq)
		}
	case transport.OpFetchAdd:
		require.Equal(t.tb, t.adds, leWord(t.back.Bytes()[at:]), "Atomic %d", seq)
		t.adds++
	default:
		// It is acknowledged: its source is used again at once.
		copy(t.src.Bytes()[at:at+n], noise)
	}
	t.done++
}

// received takes a completion at the peer: in order, once, and with the bytes of its request.
func (t *traffic) received(wc transport.WC) {
	require.NoError(t.tb, wc.Err)
	require.Equal(t.tb, t.got, wc.ID>>8, "messages come in order")
	seq := t.messages[t.got%trafficSlots]
	t.got++
	slot := int(seq % trafficSlots)
	at, n := slot*t.size, t.lengths[slot]
	t.pending[slot] = false
	if wc.HasImm {
		require.Equal(t.tb, uint32(seq), wc.Imm)
	} else {
		require.Equal(t.tb, n, wc.Bytes)
	}
	if i := same(t.dst.Bytes()[at:at+n], t.rank, seq); i >= 0 {
		t.tb.Fatalf("byte %d of %d of message %d of rank %d is not what was sent", i, n, seq, t.rank)
	}
	t.told++
}

// sameAt tells the first byte of a that is not that of b, or -1.
func sameAt(a, b []byte) int {
	if bytes.Equal(a, b[:len(a)]) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

func leWord(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// exchange drives traffic of up to size bytes a request both ways, until it has been enough and all that was
// posted is through. Between passes it calls between.
func exchange(tb testing.TB, list [2]*side, seed uint64, size int, enough func(posted uint64) bool,
	between func()) (both [2]*traffic) {
	for i := range both {
		both[i] = newTraffic(tb, i, list[i], list[1-i], seed, size)
	}
	take := func(s *side) {
		s.poll()
		for _, wc := range s.wcs {
			t := both[wc.ID&1]
			if wc.ID&0x80 != 0 {
				t.received(wc)
			} else {
				t.completed(wc)
			}
		}
		s.wcs = s.wcs[:0]
	}
	progress, last := uint64(0), time.Now()
	for {
		sum, ready := uint64(0), true
		for _, t := range both {
			stop := enough(t.posted)
			if !stop {
				for range t.random.IntN(3) {
					t.post()
				}
			}
			ready = ready && stop && t.done == t.posted && t.got == t.recvs
			sum += t.done + t.got
		}
		if ready {
			return both
		}
		for _, s := range list {
			take(s)
		}
		between()
		if sum != progress {
			progress, last = sum, time.Now()
		} else if time.Since(last) > patience {
			tb.Fatalf("nothing moves: %v", describeLanes(list))
		}
	}
}

func describeLanes(list [2]*side) string {
	text := ""
	for i, s := range list {
		b := s.lanesOf()
		text += fmt.Sprintf("\n rank %d: %v %v\n  %+v\n  next in %d, out %d to %d, losses %+v, making %v, alone %v, held %d",
			i, s.to.State(), s.to.Err(), b.laneStats(),
			b.recv.in.Next(), b.send.out.First(), b.send.out.Next(), b.failover, b.dial.dialing, b.dial.noLaneSince.Load(), b.recv.in.Holds())
		for _, l := range b.conns {
			text += fmt.Sprintf("\n  lane %d: blocked %v, quiet %v, greeted %v, partial %d", l.number,
				l.blocked, l.awaitingFirstFrame, l.greeted, l.partialNumber)
		}
	}
	return text
}

// lanesUp drives two sides until all their lanes are there.
func lanesUp(tb testing.TB, list [2]*side, n int) {
	tb.Helper()
	drive(tb, list, "all lanes", func() bool {
		return len(list[0].lanesOf().conns) == n && len(list[1].lanesOf().conns) == n
	})
}

// requests is reached when each side has posted n requests.
func requests(n uint64) func(uint64) bool { return func(posted uint64) bool { return posted >= n } }

// Large messages are split over the lanes, which run ahead of each other: what comes beyond a hole is placed,
// recorded and told in order.
func TestLanes_H1_H3_TrafficOverLanes(t *testing.T) {
	for _, o := range []Options{{Lanes: 1, Reconnect: true}, {Lanes: 2}, {Lanes: 4},
		{Lanes: 3, Checksum: ChecksumAlways}, {Lanes: 3, TLS: true}} {
		t.Run(fmt.Sprintf("%d lanes, checksum %v, TLS %v", o.Lanes, o.Checksum, o.TLS), func(t *testing.T) {
			list := newCouple(t, o, 64, nil)
			lanesUp(t, list, o.Lanes)
			exchange(t, list, uint64(o.Lanes), 384<<10, requests(200), func() {})
			for _, s := range list {
				stats := s.to.Lanes()
				require.Equal(t, o.Lanes, stats.Lanes)
				require.Zero(t, stats.Holes)
				require.Zero(t, stats.Duplicates)
				if o.Lanes > 1 {
					require.NotZero(t, stats.HolesClosed, "the lanes have never run ahead of each other")
				}
			}
		})
	}
}

// Lanes are cut again and again, also all of them at once: nothing is lost, doubled, out of order, or placed
// late. Every cut strikes: both ends lose that lane.
func TestLanes_H5_AThousandCuts(t *testing.T) {
	total, each := 0, 200
	if !testlength.Whole() {
		each = 40
	}
	for _, o := range []Options{{Lanes: 1, Reconnect: true}, {Lanes: 2}, {Lanes: 4},
		{Lanes: 3, Checksum: ChecksumAlways}, {Lanes: 2, TLS: true}} {
		cuts := 0
		t.Run(fmt.Sprintf("%d lanes, checksum %v, TLS %v", o.Lanes, o.Checksum, o.TLS), func(t *testing.T) {
			list := newCouple(t, o, 64, nil)
			random := rand.New(rand.NewPCG(uint64(o.Lanes), 5))
			struck := map[uint16]bool{} // by the lane's number: an end may be slow to notice
			resent := func() (n uint64) {
				for _, s := range list {
					n += s.lanesOf().laneStats().Resent
				}
				return n
			}
			enough := func() bool { return cuts >= each && (resent() > 0 || cuts >= 200) }
			exchange(t, list, 100+uint64(o.Lanes), 96<<10, func(uint64) bool { return enough() }, func() {
				if random.IntN(16) != 0 || enough() {
					return
				}
				b, all := list[random.IntN(2)].lanesOf(), random.IntN(4) == 0
				for _, l := range b.conns {
					other := list[0].lanesOf()
					if other == b {
						other = list[1].lanesOf()
					}
					if (all || random.IntN(len(b.conns)) == 0) && other.find(l.number) != nil &&
						!struck[l.number] {
						struck[l.number] = true
						require.NoError(t, reset(l.fd))
						cuts++
					}
				}
			})
			drive(t, list, "the losses", func() bool {
				return list[0].lanesOf().laneStats().Down >= uint64(cuts) &&
					list[1].lanesOf().laneStats().Down >= uint64(cuts)
			})
			require.NotZero(t, resent(), "no cut has taken anything away")
			t.Logf("%d cuts; %+v; %+v", cuts, list[0].lanesOf().laneStats(), list[1].lanesOf().laneStats())
		})
		total += cuts
	}
	require.GreaterOrEqual(t, total, 5*each)
}
