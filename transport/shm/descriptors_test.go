package shm

import (
	"context"
	"net"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/handshake"
)

// wrongDescriptors make what a rank that holds the secret may pass in place of its memory, of minArena bytes.
// Each would fault, block, or change its size under who maps it.
var wrongDescriptors = map[string]func(t *testing.T) int{
	"pipe": func(t *testing.T) int {
		r, w, err := sys.Pipe()
		require.NoError(t, err)
		sys.CloseFD(w)
		return r
	},
	"eventfd that blocks": func(t *testing.T) int {
		fd, _, e := syscall.Syscall(syscall.SYS_EVENTFD2, 0, 0, 0)
		require.Zero(t, e)
		return int(fd)
	},
	"socket": func(t *testing.T) int {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_DGRAM, 0)
		require.NoError(t, err)
		return fd
	},
	"device": func(t *testing.T) int {
		fd, err := syscall.Open("/dev/zero", syscall.O_RDWR, 0)
		require.NoError(t, err)
		return fd
	},
	"file": func(t *testing.T) int {
		fd, err := syscall.Open(filepath.Join(t.TempDir(), "file"), syscall.O_RDWR|syscall.O_CREAT, 0o600)
		require.NoError(t, err)
		require.NoError(t, syscall.Ftruncate(fd, int64(minArena)))
		return fd
	},
	"memory that is not sealed": func(t *testing.T) int { return nameless(t, 0) },
	"memory of huge pages":      func(t *testing.T) int { return nameless(t, 4) },
	"folder": func(t *testing.T) int {
		fd, err := syscall.Open(t.TempDir(), syscall.O_RDONLY, 0)
		require.NoError(t, err)
		return fd
	},
}

// nameless is memory of a file that has no name, with flags of memfd_create.
func nameless(t *testing.T, flags uintptr) int {
	const allowSealing = 2
	call, known := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	if !known {
		t.Skip("memfd_create has another number here")
	}
	name := []byte("weft-test\x00")
	fd, _, e := syscall.Syscall(call, uintptr(unsafe.Pointer(&name[0])), flags|allowSealing, 0)
	if e != 0 {
		t.Skip("memfd_create: ", e)
	}
	const hugePage = 2 << 20
	size := int64(minArena)
	if flags != 0 {
		size = (size + hugePage - 1) / hugePage * hugePage
	}
	require.NoError(t, syscall.Ftruncate(int(fd), size))
	return int(fd)
}

// Whatever a rank passes in place of its memory is closed, never mapped, and it is turned down, whichever of
// the two has begun.
func TestMaliciousRank_PassesOtherThings(t *testing.T) {
	var secret [32]byte
	for name, makeOne := range wrongDescriptors {
		t.Run(name, func(t *testing.T) {
			d := openDoor(t, Options{})
			fds := descriptors(t)
			c := d.call(t)
			c.proved(&secret)
			fd := makeOne(t)
			c.give(&secret, c.offer(), fd)
			require.ErrorIs(t, <-d.refused, transport.ErrProtocol)
			c.rest()
			require.NoError(t, c.conn.Close())
			require.Equal(t, fds+1, descriptors(t), "it is closed")

			addr, ended := acceptWith(t, &secret, fd)
			err := d.ep.Connect(context.Background(), 1, addr)
			require.ErrorIs(t, err, transport.ErrProtocol)
			require.ErrorContains(t, err, "rank 1")
			<-ended
			sys.CloseFD(fd)
			require.Equal(t, fds, descriptors(t))
			require.Zero(t, d.held(), "memory that it may use")
			require.Empty(t, d.made)
		})
	}
}

// acceptWith is rank 1 who accepts one connection and passes a descriptor.
func acceptWith(t *testing.T, secret *[32]byte, fd int) (addr string, ended chan struct{}) {
	addr, err := newAddress()
	require.NoError(t, err)
	_, name, _ := split(addr)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: "@" + name, Net: network})
	require.NoError(t, err)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		defer l.Close()
		made, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer made.Close()
		made.SetDeadline(time.Now().Add(2 * time.Minute))
		c := &conn{UnixConn: made}
		body, _, err := c.receive(typeHello, 0)
		if err != nil {
			return
		}
		who, _ := parseHello(body)
		who.nonces[1] = handshake.NewNonce()
		sys.SendDescriptors(made, who.appendAccept(nil, secret, (&caller{}).offer(), nil), fd)
		made.Read(make([]byte, messageSize)) // it is turned down
	}()
	return addr, ended
}
