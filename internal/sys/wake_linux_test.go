package sys

import (
	"crypto/rand"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func wakeAddress(t *testing.T) *WakeAddress {
	t.Helper()
	var name, token [TokenSize]byte
	rand.Read(name[:])
	rand.Read(token[:])
	a, err := NewWakeAddress("weft-test-"+hex.EncodeToString(name[:]), token)
	require.NoError(t, err)
	return a
}

func wokenPoller(t *testing.T, at *WakeAddress) *Poller {
	t.Helper()
	p, err := NewPoller()
	require.NoError(t, err)
	t.Cleanup(p.Close)
	require.NoError(t, p.Open(at))
	return p
}

// waits reports whether a short wait passes undisturbed.
func (p *Poller) waits(t *testing.T) bool {
	t.Helper()
	for {
		n, err := unix.EpollWait(p.epoll, make([]unix.EpollEvent, 1), 20)
		if err == unix.EINTR { // Go's scheduler sends signals
			continue
		}
		require.NoError(t, err)
		return n == 0
	}
}

func TestWake_EndsTheWaitOfAnotherPoller(t *testing.T) {
	at := wakeAddress(t)
	sleeper, waker := wokenPoller(t, at), wokenPoller(t, wakeAddress(t))
	require.True(t, sleeper.waits(t))
	waker.Signal(at)
	require.NoError(t, sleeper.Wait(time.Minute))
	require.True(t, sleeper.waits(t), "a wake counts once")
}

// However often a poller is woken and drained, the next wake ends a wait.
func TestWake_AfterADrain(t *testing.T) {
	p, err := NewPoller()
	require.NoError(t, err)
	t.Cleanup(p.Close)
	for range 3 {
		p.Wake()
		p.Wake()
		require.False(t, p.waits(t))
		p.Drain()
		require.True(t, p.waits(t))
		p.Wake()
		require.NoError(t, p.Wait(time.Minute))
		require.True(t, p.waits(t), "a wake counts once")
	}
}

// A process that does not know the token wakes nobody, and takes no room.
func TestWake_WithoutTheTokenNothingComes(t *testing.T) {
	at := wakeAddress(t)
	sleeper, waker := wokenPoller(t, at), wokenPoller(t, wakeAddress(t))
	forged := *at
	forged.token[TokenSize-1] ^= 1
	for range 1000 {
		require.Zero(t, forged.send(waker.wake))
	}
	require.True(t, sleeper.waits(t))
	waker.Signal(at)
	require.False(t, sleeper.waits(t))
}

// Whatever the sleeper does or does not do, whoever wakes it goes on, and others are woken as before.
func TestWake_NeverBlocks(t *testing.T) {
	waker := wokenPoller(t, wakeAddress(t))
	for range 1000 { // of whom none ever looks: the waker's socket holds what they have not taken
		deaf := wakeAddress(t)
		p := wokenPoller(t, deaf)
		waker.Signal(deaf)
		require.False(t, p.waits(t))
	}
	at := wakeAddress(t)
	sleeper := wokenPoller(t, at)
	for range 1000 {
		waker.Signal(at) // more than its queue takes
	}
	require.False(t, sleeper.waits(t))
	sleeper.Drain()
	require.True(t, sleeper.waits(t))
	waker.Signal(at)
	require.False(t, sleeper.waits(t))
}

func TestProber_FindsWhoIsGone(t *testing.T) {
	at := wakeAddress(t)
	prober, err := NewProber()
	require.NoError(t, err)
	defer prober.Close()
	require.True(t, prober.Gone(at))
	p, err := NewPoller()
	require.NoError(t, err)
	require.NoError(t, p.Open(at))
	require.False(t, prober.Gone(at))
	require.True(t, p.waits(t), "a look disturbs nobody")
	p.Close()
	require.True(t, prober.Gone(at))
}

// Memory of huge pages has all the seals, and kills whoever touches a page that the system does not have.
func TestShared_HugePagesAreRefused(t *testing.T) {
	const size = 1 << 30
	fd, err := unix.MemfdCreate("weft", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil {
		t.Skip("no huge pages: ", err)
	}
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, size))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sharedSeals)
	require.NoError(t, err)
	require.ErrorContains(t, CheckShared(fd, size), "not of tmpfs")
}

func TestShared_EverySealIsWanted(t *testing.T) {
	const size = 1 << 16
	for _, seals := range []int{0, unix.F_SEAL_SHRINK, unix.F_SEAL_SHRINK | unix.F_SEAL_GROW} {
		fd, err := unix.MemfdCreate("weft", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Ftruncate(fd, size))
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		require.NoError(t, err)
		require.ErrorContains(t, CheckShared(fd, size), "not sealed")
	}
	fd, err := SharedMemory(size)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, CheckShared(fd, size))
	require.ErrorContains(t, CheckShared(fd, size+4096), "said to be of")
}
