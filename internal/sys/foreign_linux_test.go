package sys

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A page that never comes blocks who reads it, and nobody else: the garbage collector, which stops all others
// for a moment, does not wait for the call.
func TestForeign_PageThatNeverComesStopsNobodyElse(t *testing.T) {
	page := os.Getpagesize()
	mem, err := Map(page)
	require.NoError(t, err)
	defer func() { require.NoError(t, Unmap(mem)) }()
	fault := neverComing(t, mem)
	closeOnce := func() {
		if fault >= 0 {
			unix.Close(fault)
			fault = -1
		}
	}
	defer closeOnce()

	proof := [32]byte{7}
	f := Foreign{Pid: os.Getpid(), Proof: uint64(uintptr(unsafe.Pointer(&proof))), Secret: proof}
	done := make(chan error)
	go func() { done <- f.Read(make([]byte, 8), uint64(uintptr(unsafe.Pointer(&mem[0])))) }()
	select {
	case err := <-done:
		t.Fatalf("the page came, or the call failed: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	collected := make(chan struct{})
	go func() { runtime.GC(); close(collected) }()
	select {
	case <-collected:
	case <-time.After(20 * time.Second):
		closeOnce()
		t.Fatal("the garbage collector waits for the call")
	}
	closeOnce() // as the end of a process does: the page comes, or the process is no more
	require.NoError(t, <-done)
	runtime.KeepAlive(&proof)
}

// neverComing has the pages of a mapping wait for a descriptor, which nobody serves.
func neverComing(t *testing.T, mem []byte) (fd int) {
	t.Helper()
	const (
		api           = 0xc018aa3f // UFFDIO_API
		register      = 0xc020aa00 // UFFDIO_REGISTER
		version       = 0xaa
		whenMissing   = 1
		closesOnExec  = unix.O_CLOEXEC
		doesNotBlock  = unix.O_NONBLOCK
		faultsOfUsers = 0 // and of the kernel
	)
	r, _, e := unix.Syscall(unix.SYS_USERFAULTFD, closesOnExec|doesNotBlock|faultsOfUsers, 0, 0)
	if e != 0 {
		t.Skip("userfaultfd: ", e)
	}
	fd = int(r)
	if _, _, e = unix.Syscall(unix.SYS_IOCTL, r, api, uintptr(unsafe.Pointer(&[3]uint64{version}))); e == 0 {
		_, _, e = unix.Syscall(unix.SYS_IOCTL, r, register,
			uintptr(unsafe.Pointer(&[4]uint64{uint64(uintptr(unsafe.Pointer(&mem[0]))), uint64(len(mem)),
				whenMissing})))
	}
	if e != 0 {
		unix.Close(fd)
		t.Skip("userfaultfd: ", e)
	}
	return fd
}
