package tcp

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// side is one of two connected ranks in one process.
type side struct {
	dev *Device
	pd  transport.PD
	cq  transport.CQ
	ep  transport.Endpoint
	out transport.MR // what it writes
	in  transport.MR // where the other side writes
	qp  chan transport.QP
	to  transport.QP
	seq uint64
	wcs []transport.WC

	// Of writes and poll: what would otherwise be made each time.
	wr   transport.SendWR
	room [16]transport.WC
	qps  [4]transport.QPN
}

func (s *side) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SendWR: 64, RecvWR: 64, Reads: 4}, nil,
		nil
}
func (s *side) Connected(_ uint32, qp transport.QP, _ []byte) { s.qp <- qp }
func (s *side) Refused(string, error)                         {}

// newCouple connects two ranks that write n bytes to each other; via may have the connection go through
// something.
func newCouple(tb testing.TB, o Options, n int, via func(addr string) string) (list [2]*side) {
	tb.Helper()
	for rank := range list {
		s := &side{qp: make(chan transport.QP, 1)}
		var err error
		s.dev, err = New(o)
		require.NoError(tb, err)
		tb.Cleanup(func() { require.NoError(tb, s.dev.Close()) })
		s.pd, err = s.dev.AllocPD()
		require.NoError(tb, err)
		s.cq, err = s.dev.CreateCQ(256, 0)
		require.NoError(tb, err)
		s.out, err = s.pd.Alloc(n, 0)
		require.NoError(tb, err)
		s.in, err = s.pd.Alloc(n, transport.RemoteWrite|transport.SoleWriter)
		require.NoError(tb, err)
		id := hostIdentity
		id.Rank = uint32(rank)
		s.ep, err = s.dev.Listen(id, s)
		require.NoError(tb, err)
		list[rank] = s
	}
	addr := list[1].ep.Addr()
	if via != nil {
		addr = via(addr)
	}
	require.NoError(tb, list[0].ep.Connect(tb.Context(), 1, addr))
	list[0].to, list[1].to = <-list[0].qp, <-list[1].qp
	return list
}

// writes posts a Write of all of out, which ends with its number.
func (s *side) writes(tb testing.TB, peer *side) {
	s.seq++
	b := s.out.Bytes()
	binary.LittleEndian.PutUint64(b[len(b)-8:], s.seq)
	if s.wr.Local == nil {
		s.wr = transport.SendWR{Op: transport.OpWrite, Local: []transport.SGE{{MR: s.out, Length: len(b)}},
			Remote: []transport.Segment{{Key: peer.in.Key(), Length: uint64(len(b))}}}
	}
	if err := s.to.PostSend(&s.wr); err != nil {
		tb.Fatal(err)
	}
}

// awaits drives both sides until the peer's latest Write is here.
func (s *side) awaits(tb testing.TB, peer *side) {
	b := s.in.Bytes()
	last := b[len(b)-8:]
	for i := 1; binary.LittleEndian.Uint64(last) != peer.seq; i++ {
		peer.poll()
		s.poll()
		if i%1_000_000 == 0 {
			tb.Fatalf("Write %d has not come: %v, %v", peer.seq, s.to.Err(), peer.to.Err())
		}
	}
}

func (s *side) poll() int {
	n := s.cq.Poll(s.room[:])
	s.wcs = append(s.wcs, s.room[:n]...)
	return n + s.cq.Placed(s.qps[:])
}

// drive polls both until something holds.
func drive(tb testing.TB, list [2]*side, what string, holds func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !holds(); {
		if list[0].poll()+list[1].poll() == 0 && time.Now().After(end) {
			tb.Fatalf("%s: not within %v; %v, %v", what, patience, list[0].to.Err(), list[1].to.Err())
		}
	}
}
