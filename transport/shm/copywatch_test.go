//go:build linux

package shm

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/faulttest"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// withheldRead is a Read of memory of the child whose pages never come.
var withheldRead = traffic{name: "ReadOfWithheldMemory", bytes: 1 << 20, far: withheld,
	post: request(transport.OpRead), change: func(o *Options) {
		o.PeerTimeout = 3 * time.Second
		o.Fatal = func(peer uint32, err error) { fatals <- err }
	}}

var fatals = make(chan error, 1)

func withheld(e *end, n int) (transport.MR, error) {
	if os.Getenv(childKind) == "" {
		return ordinary(e, n)
	}
	m, err := faulttest.New(n)
	if err != nil {
		return nil, err
	}
	return e.pd.Register(m.Bytes, everyRight)
}

// A page of the peer that never comes holds up the thread that reads it and its driver, and nothing else of
// the process; after half of the peer timeout the peer is given up and killed, and the Read fails.
func TestProcess_PeerWhoseMemoryNeverComesIsGivenUp(t *testing.T) {
	skipUnlessWithheld(t)
	e, c, _ := spawn(t, "-"+withheldRead.name)
	ended := make(chan error, 1)
	go func() { ended <- withheldRead.run(e, c.far, func() {}) }()
	runtime.GC()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		c.kill()
		t.Fatal("the Read goes on")
	}
	require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
	require.ErrorContains(t, e.qp.Err(), "a copy of memory of process "+strconv.Itoa(c.cmd.Process.Pid))
	require.Error(t, c.cmd.Wait())
	status := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.Equal(t, syscall.SIGKILL, status.Signal())
	require.Empty(t, fatals)
	require.NoError(t, e.dev.Close())
}

// A copy whose thread waits for nothing but a processor is not held up, however long it takes.
func TestWatchCopy_ThreadThatWaitsForAProcessor(t *testing.T) {
	a, _ := couple(t, Options{})
	// The device's watcher checks only the device's own connections.
	l := &connection{qp: a.qp}
	l.outside = &sys.Foreign{Pid: os.Getpid()}
	calls := reflect.ValueOf(l.outside).Elem().FieldByName("calls")
	*(*uint64)(calls.Addr().UnsafePointer()) = 1 // a call is under way, and no thread sleeps in one
	for range 3 {
		a.dev.watchCopy(l, true, time.Hour)
	}
	require.False(t, l.copying.gaveUp.Load())
	require.Zero(t, l.copying.lasted)
}

// Where yet another process withholds the page, the end of the peer changes nothing: the device says that
// this process can only end.
func TestProcess_MemoryThatAThirdProcessWithholdsIsFatal(t *testing.T) {
	skipUnlessWithheld(t)
	e, c, _ := spawn(t, "-"+withheldRead.name)
	held := takeUserfault(t, c.cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- withheldRead.run(e, c.far, func() {}) }()
	select {
	case err := <-fatals:
		require.ErrorIs(t, err, transport.ErrPeerLost)
		require.ErrorContains(t, err, "nor after its process was killed")
	case err := <-ended:
		t.Fatalf("the Read ended: %v", err)
	case <-time.After(2 * time.Minute):
		t.Error("nobody is told")
	}
	syscall.Close(held)
	<-ended
	require.ErrorIs(t, e.qp.Err(), transport.ErrPeerLost)
	require.NoError(t, e.dev.Close())
}

// takeUserfault has this process hold the descriptor of a child's withheld memory too.
func takeUserfault(t *testing.T, pid int) int {
	t.Helper()
	const openProcess, takeDescriptor = 434, 438 // pidfd_open, pidfd_getfd
	links, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/fd/*")
	require.NoError(t, err)
	for _, l := range links {
		if what, _ := os.Readlink(l); !strings.Contains(what, "userfaultfd") {
			continue
		}
		number, err := strconv.Atoi(filepath.Base(l))
		require.NoError(t, err)
		process, _, e := syscall.Syscall(openProcess, uintptr(pid), 0, 0)
		require.Zero(t, e)
		defer syscall.Close(int(process))
		fd, _, e := syscall.Syscall(takeDescriptor, process, uintptr(number), 0)
		if e != 0 {
			t.Skip("pidfd_getfd: ", e)
		}
		return int(fd)
	}
	t.Fatal("the child has no userfaultfd")
	return -1
}

func skipUnlessWithheld(t *testing.T) {
	t.Helper()
	m, err := faulttest.New(os.Getpagesize())
	if err != nil {
		t.Skip(err)
	}
	m.Serve()
}

// A connection is not made with a peer that withholds the secret by which its memory is known.
func TestConnect_MemoryThatNeverComesEndsTheHandshake(t *testing.T) {
	m, err := faulttest.New(os.Getpagesize())
	if err != nil {
		t.Skip(err)
	}
	var logged bytes.Buffer
	a, b := couple(t, Options{PeerTimeout: MinPeerTimeout})
	a.dev.opts.Log = slog.New(slog.NewTextHandler(&logged, nil))
	p, err := b.dev.prepareQP(transport.QPConfig{PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq, SendWR: 8, RecvWR: 8})
	require.NoError(t, err)
	offer := b.dev.offer(p)
	offer.probe = addressOf(m.Bytes)
	fd, err := syscall.Dup(b.dev.arena.fd)
	require.NoError(t, err)
	_, err = a.dev.accept(offer, []int{fd}, os.Getpid())
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.Contains(t, logged.String(), "its process killed")
	require.Contains(t, logged.String(), "a copy of memory of process "+strconv.Itoa(os.Getpid()))
	m.Serve()
	b.dev.drop(p, nil)
}

// Whatever finds that a copy of a peer's memory does not end, and however often: the device says so once.
func TestFatal_IsCalledOnceForAPeer(t *testing.T) {
	told := make(chan uint32, 4)
	a, _ := couple(t, Options{Fatal: func(peer uint32, _ error) { told <- peer }})
	l := a.qp.conn
	other := &connection{qp: l.qp, outside: l.outside} // through another port
	for range 2 {
		a.dev.endOver(l)
		a.dev.endOver(other)
	}
	require.EqualValues(t, 1, <-told)
	time.Sleep(10 * time.Millisecond)
	require.Empty(t, told)
}
