package tcp

import (
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// heard takes everything that the queue pair has sent.
func (s *session) heard(tb testing.TB) (list []heardFrame) {
	var all []byte
	b := make([]byte, 1<<16)
	for {
		n, err := syscall.Read(s.wire, b)
		if err == syscall.EAGAIN || n == 0 {
			break
		}
		require.NoError(tb, err)
		all = append(all, b[:n]...)
	}
	return s.framesOf(tb, all)
}

// framesOf takes apart what the queue pair has sent.
func (s *session) framesOf(tb testing.TB, all []byte) (list []heardFrame) {
	for len(all) > 0 {
		h, err := frame.Parse(all)
		require.NoError(tb, err)
		f := heardFrame{h, slices.Clone(all[firstLink(s.qp).in.size:][:h.Length])}
		list = append(list, f)
		whole := frame.Append(nil, f.Header, f.payload, s.qp.checked)
		require.Equal(tb, whole, all[:len(whole)], "the frame, with its checksums if it has them")
		all = all[len(whole):]
	}
	return list
}

// says sends bytes to the queue pair and drives it.
func (s *session) says(tb testing.TB, b []byte) {
	n, err := syscall.Write(s.wire, b)
	require.NoError(tb, err)
	require.Equal(tb, len(b), n)
	s.poll()
}

func kinds(list []heardFrame) (o []frame.Op) {
	for _, f := range list {
		o = append(o, f.Op)
	}
	return o
}

// The responder sends nothing, whatever is posted, before it has seen that the initiator is in RDMA mode;
// then it sends all of it.
func TestMode_C2_ResponderIsSilentBeforeReady(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, false)
	defer s.end(t)
	require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 1, Op: transport.OpSend,
		Flags: transport.FlagSignaled}))
	s.qp.Flush()
	s.qp.Close()
	s.poll()
	require.Empty(t, s.heard(t))
	require.Empty(t, s.wcs)
	s.says(t, frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil))
	require.Equal(t, []frame.Op{frame.Send, frame.Close}, kinds(s.heard(t)))
	require.Len(t, s.wcs, 1)
	require.Equal(t, transport.StatusSuccess, s.wcs[0].Status)
}

// An end before Ready is silent too: the other side may still be reading messages of handshake.
func TestMode_C5_AbortBeforeReadyIsSilent(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, false)
	defer s.end(t)
	s.qp.Abort(nil)
	require.Empty(t, s.heard(t))
	require.ErrorContains(t, s.qp.Err(), "aborted")
}

// The initiator's first frame is Ready, even if it has nothing to say, or only why it ends.
func TestMode_C2_InitiatorBeginsWithReady(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	require.Equal(t, []frame.Op{frame.Ready}, kinds(s.heard(t)))
	s.end(t)

	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.SetNonblock(fds[0], true))
	require.NoError(t, syscall.SetNonblock(fds[1], true))
	conf := transport.QPConfig{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq, SendWR: 8, RecvWR: 8, Reads: 2}
	s.wire, s.qp = fds[1], s.dev.newQP(conf, 1, "here", "the-peer", true, s.agreed)
	newSingleLink(s.qp, fds[0], nil)
	s.qp.Abort(nil) // before the device has driven it
	require.Equal(t, []frame.Op{frame.Ready, frame.Terminate}, kinds(s.heard(t)))
	s.end(t)
}

// What comes first and is not Ready ends the queue pair; the peer is told as far as it can be in RDMA mode.
func TestMode_C2_FirstFrameIsNotReady(t *testing.T) {
	s := newSessionDevice(t)
	for name, sent := range map[string][]byte{
		"Write where Ready must come first":     frame.Header{Op: frame.Write}.Append(nil),
		"Terminate where Ready must come first": frame.Header{Op: frame.Terminate}.Append(nil),
		"frame type 111 with flags 0x666120":    []byte("Hello after the handshake"),
	} {
		s.begin(t, false)
		s.says(t, sent)
		require.Equal(t, transport.StateError, s.qp.State(), name)
		require.ErrorIs(t, s.qp.Err(), transport.ErrProtocol)
		require.ErrorContains(t, s.qp.Err(), name)
		require.ErrorContains(t, s.qp.Err(), sessionPeer)
		s.end(t)
	}
}

// Bytes that come in one piece with the last message of handshake are the first of RDMA mode, on either side:
// none is lost, and none is read as the other.
func TestMode_C2_FramesRightAfterHandshake(t *testing.T) {
	h := newHost(t, Options{})
	target, err := h.pd.Alloc(8, transport.RemoteWrite)
	require.NoError(t, err)
	write := append(frame.Header{Length: 8, Op: frame.Write, Flags: frame.Last, A: uint64(target.Key())}.Append(nil),
		"in place"...)
	ready := frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil)

	r := h.dial(1)
	r.sayHello()
	r.hearChallenge()
	r.say(slices.Concat(r.request(), ready, write))
	m := h.nextMade()
	h.until("the initiator's Write", func() bool { return string(target.Bytes()) == "in place" })
	m.qp.Release()

	clear(target.Bytes())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	r, result := h.calls(l, 2)
	r.challenges()
	r.hearRequest()
	// Out of its turn, since the initiator has not said Ready, but in RDMA mode.
	r.say(slices.Concat(r.AppendAccept(nil, &testSecret, testParameters, nil), write))
	require.NoError(t, <-result)
	m = h.nextMade()
	h.until("the responder's Write", func() bool { return string(target.Bytes()) == "in place" })
	require.Equal(t, transport.StateReady, m.qp.State())
	m.qp.Release()
}
