package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp"
)

// forgetful is a device that loses the answers of its rank to requests for other buffers.
type forgetful struct {
	transport.Device
	losses *atomic.Int64 // how many more are lost
}

func (d forgetful) Listen(id transport.Identity, a transport.Acceptor) (transport.Endpoint, error) {
	return d.Device.Listen(id, forgetfulAcceptor{a, d.losses})
}

type forgetfulAcceptor struct {
	transport.Acceptor
	losses *atomic.Int64
}

func (a forgetfulAcceptor) Connected(rank uint32, qp transport.QP, private []byte) {
	a.Acceptor.Connected(rank, forgetfulQP{qp, a.losses}, private)
}

type forgetfulQP struct {
	transport.QP
	losses *atomic.Int64
}

func (q forgetfulQP) PostSend(wr *transport.SendWR) error {
	// of what a rank posts that only receives, these alone are answers
	reply := wr.Op == transport.OpWrite && wr.Flags == transport.FlagInline ||
		wr.Op == transport.OpWriteImm && wr.Imm == channel.ResentImm
	if reply && q.losses.Load() > 0 {
		q.losses.Dec()
		return nil
	}
	return q.QP.PostSend(wr)
}

// sendToForgetful sends a message that needs other buffers to a rank that loses so many answers.
func sendToForgetful(t *testing.T, losses int64) (w []*Engine, err error) {
	devices := make([]transport.Device, 2)
	for i := range devices {
		d, err := tcp.New(tcp.Options{PeerTimeout: tcp.MinPeerTimeout})
		require.NoError(t, err)
		devices[i] = d
	}
	lost := atomic.NewInt64(losses)
	devices[1] = forgetful{devices[1], lost}
	w = worldOf(t, devices, Config{ReplyTimeout: time.Millisecond})
	const n = 10_000
	received := make(chan error, 1)
	go func() {
		_, err := w[1].recv(world0, make([]byte, n), 0, 1, 1)
		received <- err
	}()
	err = w[0].Sends.Send(world0, make([]byte, n), 1, 1)
	if err != nil {
		w[1].hub.PeerFailed(0, err) // it would wait for the message
	}
	if got := <-received; err == nil {
		require.NoError(t, got)
	}
	return w, err
}

// TestLostReply_E7: the answer to ENLARGE is asked for again when it does not come, without anything that the
// program does.
func TestLostReply_E7(t *testing.T) {
	w, err := sendToForgetful(t, 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, w[0].Stats().Channels[0].OverdueReplies)
	require.EqualValues(t, 1, w[1].Stats().Channels[0].RepliesResent)
	require.Equal(t, 1, w[0].Stats().Channels[0].Phase)
}

// TestLostReply_E7_PeerFails: a peer that answers neither is given up. Seen to fail, by waiting for ever, where
// the heartbeat does not call ReplyTick.
func TestLostReply_E7_PeerFails(t *testing.T) {
	w, err := sendToForgetful(t, 1<<30)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "did not arrive after it was requested again")
	require.EqualValues(t, 1, w[0].Stats().Channels[0].OverdueReplies)
}
