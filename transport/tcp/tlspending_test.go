package tcp

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// A peer answers a Read while records after it wait for room in the socket: the Read completes, and what is
// posted in its place goes out in its turn.
func TestTLS_AnswerComesWhileLaterRecordsWait(t *testing.T) {
	const long = 128 << 10
	list := newCouple(t, Options{TLS: true}, long, nil)
	x, y := list[0], list[1]
	x.writes(t, y)
	y.awaits(t, x)
	drive(t, list, "the first Write's completion", func() bool { return x.to.(*qp).SQ.Len() == 0 })
	q := x.to.(*qp)
	link := q.sequencer.(*singleLink)
	require.NoError(t, syscall.SetsockoptInt(link.fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1))

	source, err := y.pd.Alloc(64, transport.RemoteRead)
	require.NoError(t, err)
	copy(source.Bytes(), "what is read")
	into, err := x.pd.Alloc(64, transport.LocalWrite)
	require.NoError(t, err)
	for i := range x.out.Bytes() {
		x.out.Bytes()[i] = byte(i * 7)
	}
	x.wcs = nil
	first := q.SQ.Tail
	require.NoError(t, x.to.PostSend(&transport.SendWR{ID: 1, Op: transport.OpRead,
		Flags: transport.FlagSignaled | transport.FlagMore, Local: []transport.SGE{{MR: into, Length: 64}},
		Remote: []transport.Segment{{Key: source.Key(), Length: 64}}}))
	x.writes(t, y)
	require.Positive(t, link.link.Pending())
	for i := 0; y.to.ReadsAnswered().Bytes == 0 && i < 10_000; i++ {
		y.poll()
	}
	for i := 0; len(x.wcs) == 0 && x.to.Err() == nil && i < 10_000; i++ {
		x.poll()
	}
	require.NoError(t, x.to.Err())
	require.Len(t, x.wcs, 1)
	require.Equal(t, uint64(1), x.wcs[0].ID)
	require.Equal(t, source.Bytes(), into.Bytes())
	require.Positive(t, link.link.Pending(), "the Write is out already")

	// A Read of no bytes has the place of the first one in the queue. It is done in its own turn, once.
	require.Same(t, q.SQ.At(first), q.SQ.At(q.SQ.Tail))
	clear(into.Bytes())
	for i, n := range []int{0, 64} {
		require.NoError(t, x.to.PostSend(&transport.SendWR{ID: 2, Op: transport.OpRead,
			Flags: transport.FlagSignaled, Local: []transport.SGE{{MR: into, Length: n}},
			Remote: []transport.Segment{{Key: source.Key(), Length: uint64(n)}}}))
		for k := 0; len(x.wcs) < 2+i && k < 1_000_000; k++ {
			x.poll()
			y.poll()
		}
	}
	require.Len(t, x.wcs, 3)
	require.Equal(t, source.Bytes(), into.Bytes())
	require.Equal(t, x.out.Bytes(), y.in.Bytes())
}
