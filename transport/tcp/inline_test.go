package tcp

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// placing is a couple that has nothing to say any more but what is placed.
func placing(tb testing.TB) [2]*side {
	sides := newCouple(tb, Options{}, 4096, nil)
	drive(tb, sides, "the greeting", func() bool {
		return sides[0].to.(*qp).idle() &&
			sides[1].to.(*qp).idle()
	})
	return sides
}

// What the caller leaves as it is brings no bytes of what was sent to others.
func TestPlace_OldBytesStayHere(t *testing.T) {
	sides := placing(t)
	to, q := sides[1], sides[0].to.(*qp)
	for i := range q.scq.out.Scratch(frame.BatchSize) {
		q.scq.out.Scratch(frame.BatchSize)[i] = 0xAA
	}
	require.True(t, q.WriteInline(&transport.Segment{Key: to.in.Key(), Length: 256},
		append(make([]byte, 8), 2), []byte{3}, 1))
	drive(t, sides, "the Write", func() bool { return to.in.Bytes()[248] == 1 })
	want := make([]byte, 248)
	want[8], want[9] = 2, 3
	require.Equal(t, want, to.in.Bytes()[:248])
}

// A frame that the socket takes in part goes on where it was cut, whatever was taken, and before what is sent
// after it.
func TestPlace_TakenInPart(t *testing.T) {
	const n = 100
	sides := placing(t)
	from, to, q := sides[0], sides[1], sides[0].to.(*qp)
	for cut := range frame.HeaderSize + n {
		segment := &transport.Segment{Key: to.in.Key(), Length: n}
		each := uint64(cut) * 0x0101010101010101
		payload := bytes.Repeat([]byte{byte(cut)}, n-24-8)
		encoded := q.compose(segment, bytes.Repeat([]byte{byte(cut)}, 24), payload, each)
		require.Len(t, encoded, frame.HeaderSize+n, "cut %d", cut)
		if cut > 0 {
			taken, err := sys.Write(firstLink(q).fd, encoded[:cut])
			require.NoError(t, err)
			require.Equal(t, cut, taken)
		}
		q.inline.inlineInPart(segment, encoded, cut, nil)
		require.True(t, q.blocked)
		require.False(t, q.WriteInline(segment, nil, nil, 0), "a frame inside another")
		from.out.Bytes()[0] = byte(cut + 1)
		require.NoError(t, q.PostSend(&transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline,
			Local:  []transport.SGE{{MR: from.out, Length: 1}},
			Remote: []transport.Segment{{Key: to.in.Key(), Offset: n, Length: 1}}}))
		drive(t, sides, "the Write after it", func() bool { return to.in.Bytes()[n] == byte(cut+1) })
		require.Equal(t, bytes.Repeat([]byte{byte(cut)}, n), to.in.Bytes()[:n])
		require.True(t, q.idle())
	}
}

// A long Write goes out of the caller's memory, which is the caller's again although the socket has taken only
// a part.
func TestPlace_LongTakenInPart(t *testing.T) {
	const n, head, pad = 3000, 24, 40
	sides := newCouple(t, Options{}, 2*n, nil)
	drive(t, sides, "the greeting", func() bool {
		return sides[0].to.(*qp).idle() && sides[1].to.(*qp).idle()
	})
	to, q := sides[1], sides[0].to.(*qp)
	segment := &transport.Segment{Key: to.in.Key(), Length: n}
	for _, cut := range []int{1, frame.HeaderSize, frame.HeaderSize + head - 1, frame.HeaderSize + head, 1000,
		frame.HeaderSize + n - tailSize - pad, frame.HeaderSize + n - 1} {
		first := make([]byte, frame.HeaderSize, frame.HeaderSize+head)
		putWriteHeader(first, segment)
		first = append(first, bytes.Repeat([]byte{byte(cut)}, head)...)
		payload := bytes.Repeat([]byte{byte(cut + 1)}, n-head-pad-tailSize)
		last := bytes.Repeat([]byte{byte(cut + 2)}, pad+tailSize)
		want := append(append(bytes.Clone(first[frame.HeaderSize:]), payload...), last...)
		whole := append(append(bytes.Clone(first), payload...), last...)
		taken, err := sys.Write(firstLink(q).fd, whole[:cut])
		require.NoError(t, err)
		require.Equal(t, cut, taken)
		q.inline.longInPart(segment, cut, first, payload, last)
		clear(payload)
		require.False(t, q.WriteInline(segment, nil, payload, 0), "a frame inside another")
		drive(t, sides, "the rest", func() bool { return q.idle() && to.in.Bytes()[n-1] == byte(cut+2) })
		require.True(t, bytes.Equal(want, to.in.Bytes()[:n]), "cut %d", cut)
	}
}

// A Write too long for a full socket is the caller's to post.
func TestPlace_LongIntoFullSocket(t *testing.T) {
	sides := newCouple(t, Options{}, 64<<10, nil)
	drive(t, sides, "the greeting", func() bool {
		return sides[0].to.(*qp).idle() && sides[1].to.(*qp).idle()
	})
	to, q := sides[1], sides[0].to.(*qp)
	segment := &transport.Segment{Key: to.in.Key(), Length: 60 << 10}
	payload := bytes.Repeat([]byte{1}, 60<<10-48)
	n := 0
	for q.WriteInline(segment, make([]byte, 24), payload, uint64(n+1)) {
		n++
	}
	require.NotZero(t, n)
	for i := range payload {
		payload[i] = 2 // nothing that was accepted changes
	}
	drive(t, sides, "all of them", func() bool {
		return q.idle() && to.in.Bytes()[60<<10-8] == byte(n)
	})
	require.True(t, bytes.Equal(bytes.Repeat([]byte{1}, len(payload)), to.in.Bytes()[24:24+len(payload)]))
}

// What cannot be sent at all ends the queue pair, and tells of the Write as of one that was posted.
func TestPlace_NotTaken(t *testing.T) {
	sides := placing(t)
	from, to, q := sides[0], sides[1], sides[0].to.(*qp)
	require.NoError(t, syscall.Shutdown(firstLink(q).fd, syscall.SHUT_WR))
	require.True(t, q.WriteInline(&transport.Segment{Key: to.in.Key(), Length: 64},
		nil, nil, 1))
	require.Equal(t, transport.StateError, q.State())
	require.ErrorIs(t, q.Err(), transport.ErrPeerLost)
	var wc [4]transport.WC
	require.Equal(t, 1, from.cq.Poll(wc[:]))
	require.Equal(t, transport.OpWrite, wc[0].Op)
	require.Equal(t, transport.StatusFatal, wc[0].Status)
}
