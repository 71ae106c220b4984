package sys

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What is sent to a process that reads nothing is acknowledged all the same, until the connection is cut.
func TestAcknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer here.Close()
	there, err := l.Accept()
	require.NoError(t, err)
	defer there.Close()
	open := func(c net.Conn) *os.File {
		f, err := c.(*net.TCPConn).File()
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	fd := int(open(here).Fd())
	becomes := func(want bool) {
		t.Helper()
		_, err := here.Write([]byte{1})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return Acknowledged(fd, 0) == want }, 2*time.Minute, time.Millisecond)
	}
	becomes(true)
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	require.NoError(t, unix.SetsockoptSockFprog(int(open(there).Fd()), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: 1, Filter: &nothing[0]}))
	becomes(false)
	require.True(t, Acknowledged(fd, time.Hour), "it was, not long ago")
	require.True(t, Acknowledged(-1, 0))
}
