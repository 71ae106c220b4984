package sys

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/faulttest"
)

// A page that never comes blocks who reads it, and nobody else: the garbage collector, which stops all others
// for a moment, does not wait for the call.
func TestForeign_PageThatNeverComesStopsNobodyElse(t *testing.T) {
	mem, err := faulttest.New(os.Getpagesize())
	if err != nil {
		t.Skip(err)
	}
	defer mem.Serve()

	proof := [32]byte{7}
	f := Foreign{Pid: os.Getpid(), Proof: uint64(uintptr(unsafe.Pointer(&proof))), Secret: proof}
	done := make(chan error)
	go func() { done <- f.Read(make([]byte, 8), uint64(uintptr(unsafe.Pointer(&mem.Bytes[0])))) }()
	select {
	case err := <-done:
		t.Fatalf("the page came, or the call failed: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	collected := make(chan struct{})
	go func() { runtime.GC(); close(collected) }()
	select {
	case <-collected:
	case <-time.After(2 * time.Minute):
		mem.Serve()
		t.Fatal("the garbage collector waits for the call")
	}
	mem.Serve() // as the end of a process does: the page comes, or the process is no more
	require.NoError(t, <-done)
	runtime.KeepAlive(&proof)
}

// A peer can have its own accesses to memory that is shared wait, and give the pages back: that is a matter of
// its mapping. Who has mapped the memory elsewhere touches all of it.
func TestShared_PagesThatThePeerWithholdsCome(t *testing.T) {
	const size = 1 << 20
	fd, err := SharedMemory(size)
	require.NoError(t, err)
	defer CloseFD(fd)
	theirs, err := MapShared(fd, size)
	require.NoError(t, err)
	ours, err := MapShared(fd, size)
	require.NoError(t, err)
	withheld, err := faulttest.Withhold(theirs)
	if err != nil {
		t.Skip(err)
	}
	defer CloseFD(withheld)
	ours[0] = 1
	for round := range 2 {
		done := make(chan int)
		go func() {
			sum := 0
			for at := 0; at < size; at += 1 << 12 {
				sum += int(ours[at])
				ours[at]++
			}
			done <- sum
		}()
		select {
		case sum := <-done:
			require.Equal(t, 1, sum)
		case <-time.After(2 * time.Minute):
			t.Fatal("a touch of shared memory waits for the peer")
		}
		require.NoError(t, Punch(fd, 0, size), "round %d", round)
		ours[0] = 1
	}
	require.NoError(t, UnmapShared(ours))
	require.NoError(t, CloseFD(withheld))
	withheld = -1
	require.NoError(t, UnmapShared(theirs))
}
