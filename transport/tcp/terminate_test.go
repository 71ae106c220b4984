package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// A Terminate ends the queue pair with what the peer said, each code in its class; the Read that it names has
// the status of it, all else is flushed.
func TestTerminate_C4_EachCodeHasItsClassAndStatus(t *testing.T) {
	s := newSessionDevice(t)
	mem, err := s.pd.Alloc(64, transport.LocalWrite)
	require.NoError(t, err)
	for code, want := range map[frame.Reason]struct {
		cause  error
		status transport.Status
	}{
		frame.ReasonLocal:    {transport.ErrPeerLost, transport.StatusRemoteOp},
		frame.ReasonAccess:   {transport.ErrAccess, transport.StatusRemoteAccess},
		frame.ReasonProtocol: {transport.ErrProtocol, transport.StatusRemoteOp},
		frame.ReasonNoRecv:   {transport.ErrProtocol, transport.StatusRNR},
		frame.ReasonReads:    {transport.ErrProtocol, transport.StatusRemoteOp},
		frame.ReasonTooLong:  {transport.ErrProtocol, transport.StatusRemoteOp},
		0x7_7f_ff:            {transport.ErrProtocol, transport.StatusRemoteOp}, // of a later version
	} {
		for _, number := range []uint64{0, 1, 2} { // no Read, ours, one that is not due
			s.begin(t, true)
			require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 1, Op: transport.OpRead,
				Local:  []transport.SGE{{MR: mem, Length: 64}},
				Remote: []transport.Segment{{Key: 1, Length: 64}}}))
			require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 2}))
			s.heard(t)
			text := "the reason"
			s.says(t, append(frame.Header{Length: len(text), Op: frame.Terminate, Flags: frame.Last, A: uint64(code),
				B: number}.Append(nil), text...))
			require.Equal(t, transport.StateError, s.qp.State())
			require.ErrorIs(t, s.qp.Err(), want.cause)
			require.ErrorContains(t, s.qp.Err(), sessionPeer)
			require.ErrorContains(t, s.qp.Err(), code.String()+`: "the reason"`)
			require.Empty(t, s.heard(t), "a Terminate is not answered")
			require.Len(t, s.wcs, 2)
			status := transport.StatusFlushed
			if number == 1 {
				status = want.status
			}
			require.Equal(t, []any{uint64(1), status}, []any{s.wcs[0].ID, s.wcs[0].Status})
			require.Equal(t, []any{uint64(2), transport.StatusFlushed}, []any{s.wcs[1].ID, s.wcs[1].Status})
			s.end(t)
		}
	}
}
