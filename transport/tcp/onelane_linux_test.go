package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// One lane costs what a connection without lanes does, counted by the kernel: for each Write one segment, which
// is one system call, of a header without lanes and the bytes; and no allocation. Two lanes cost more, so the
// count sees lanes. Seen to fail where one lane has the frames of several.
func TestLanes_H6_OneLaneCostsNothing(t *testing.T) {
	const n, turns = 64, 500
	costs := func(o Options) (bytes, segments, allocations float64) {
		list := newCouple(t, o, n, nil)
		fds := []int{firstLink(list[0].to).fd}
		if o.Lanes > 1 {
			lanesUp(t, list, o.Lanes)
			fds = nil
			for _, l := range list[0].lanesOf().conns {
				fds = append(fds, l.fd)
			}
		}
		turn := func() {
			for i, s := range list {
				s.writes(t, list[1-i])
				list[1-i].awaits(t, s)
			}
		}
		turn()
		received, sent := carried(t, fds)
		allocations = testing.AllocsPerRun(turns-1, turn) // and one to warm up
		receivedNow, sentNow := carried(t, fds)
		return float64(receivedNow-received) / turns, float64(sentNow-sent) / turns, allocations
	}
	for _, o := range []Options{{}, {Lanes: 1}} {
		bytes, segments, allocations := costs(o)
		require.EqualValues(t, frame.HeaderSize+n, bytes, "%+v", o)
		require.EqualValues(t, 1, segments, "%+v", o)
		require.Zero(t, allocations, "%+v", o)
	}
	bytes, _, _ := costs(Options{Lanes: 2})
	require.GreaterOrEqual(t, bytes, float64(frame.LaneHeaderSize+n))
}

// carried is what sockets have received in bytes, and sent in segments with data, each counted once.
func carried(t *testing.T, fds []int) (received, sent uint64) {
	t.Helper()
	for _, fd := range fds {
		bytes, segments, err := sys.TCPCarried(fd)
		require.NoError(t, err)
		received, sent = received+bytes, sent+segments
	}
	return received, sent
}
