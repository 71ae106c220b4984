package tcp

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// connectedSockets is a TCP connection over loopback. The second socket takes few bytes that nobody reads.
func connectedSockets(t *testing.T) [2]int {
	socket := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	listener, here := socket(), socket()
	defer syscall.Close(listener)
	require.NoError(t, syscall.SetsockoptInt(listener, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10))
	require.NoError(t, syscall.Bind(listener, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(listener, 1))
	at, err := syscall.Getsockname(listener)
	require.NoError(t, err)
	require.NoError(t, syscall.Connect(here, at))
	there, _, err := syscall.Accept(listener)
	require.NoError(t, err)
	return [2]int{here, there}
}

// What a side has sent before an orderly end arrives, even if the peer, which has closed first, sends
// something before it has seen the end.
func TestClose_LastBytesArriveAfterAnAliveOfThePeer(t *testing.T) {
	s := newSessionDevice(t)
	s.beginOn(t, true, 8, connectedSockets(t))
	t.Cleanup(func() { s.end(t) })
	const n = 64 << 10 // more than the peer's socket takes, and less than ours
	src, err := s.pd.Register(bytes.Repeat([]byte{0xee}, n), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, src.Deregister()) })

	s.says(t, frame.Header{Op: frame.Close, Flags: frame.Last}.Append(nil))
	for s.qp.State() != transport.StateDraining {
		s.poll()
	}
	require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpSend,
		Local: []transport.SGE{{MR: src, Length: n}}}))
	s.qp.Close()
	for s.qp.State() != transport.StateClosed {
		require.NotEqual(t, transport.StateError, s.qp.State(), "%v", s.qp.Err())
		s.poll()
	}
	s.says(t, alive())

	var got []byte
	b := make([]byte, n)
	for end := time.Now().Add(patience); ; {
		k, err := syscall.Read(s.wire, b)
		if err == syscall.EAGAIN && time.Now().Before(end) {
			continue
		}
		require.NoError(t, err, "after %d bytes", len(got))
		if k == 0 {
			break
		}
		got = append(got, b[:k]...)
	}
	require.Equal(t, n, bytes.Count(got, []byte{0xee}))
	require.Equal(t, byte(frame.Close), got[len(got)-frame.HeaderSize+4], "the last frame is a Close")
}
