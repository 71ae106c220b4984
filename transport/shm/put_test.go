package shm

import (
	"bytes"
	"errors"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// outside registers memory outside of the arena.
func outside(t *testing.T, e *end, n int) (transport.MR, *entry) {
	t.Helper()
	m, err := e.pd.Register(make([]byte, n), transport.RemoteWrite)
	require.NoError(t, err)
	return m, entryAt(e.dev.arena.mem, verbs.Index(m.Key()))
}

// inside registers a part of memory of the arena, which stays when the key goes.
func inside(t *testing.T, e *end, n int) (transport.MR, *entry) {
	t.Helper()
	all, err := e.pd.Alloc(n+4096, transport.Mappable)
	require.NoError(t, err)
	m, err := e.pd.Register(all.Bytes()[4096:], transport.RemoteWrite)
	require.NoError(t, err)
	return m, entryAt(e.dev.arena.mem, verbs.Index(m.Key()))
}

// putUntilRefused puts again and again, until the key is out of use.
func putUntilRefused(a *end, src []byte, to *transport.Segment) error {
	for {
		if err := a.qp.Put(src, to); err != nil {
			return err
		}
	}
}

// writeUntilRefused is putUntilRefused with Writes.
func writeUntilRefused(a *end, src []byte, to *transport.Segment) error {
	m, err := a.pd.Register(src, 0)
	if err != nil {
		return err
	}
	wr := transport.SendWR{Op: transport.OpWrite, Remote: []transport.Segment{*to},
		Local: []transport.SGE{{MR: m, Length: len(src)}}}
	var wcs [16]transport.WC
	for a.qp.State() == transport.StateReady {
		if err := a.qp.PostSend(&wr); err != nil && !errors.Is(err, transport.ErrQueueFull) {
			return err
		}
		a.cq.Poll(wcs[:])
	}
	return a.qp.Err()
}

// Memory of the program that a peer writes to is the program's again when it is deregistered.
func TestPut_NothingIsPlacedAfterDeregister(t *testing.T) {
	const n, wanted = 1 << 20, 20
	src := bytes.Repeat([]byte{0xee}, n)
	for _, way := range []struct {
		name     string
		register func(*testing.T, *end, int) (transport.MR, *entry)
		write    func(*end, []byte, *transport.Segment) error
		refused  error
	}{
		{"a Put", outside, putUntilRefused, transport.ErrNotNow},
		{"a Put to the arena", inside, putUntilRefused, transport.ErrNotNow},
		{"a Write to the arena", inside, writeUntilRefused, transport.ErrAccess},
	} {
		t.Run(way.name, func(t *testing.T) {
			struck := 0
			for round := 0; struck < wanted; round++ {
				require.Less(t, round, 100*wanted, "hardly ever a copy is under way")
				eachFence(t, func(t *testing.T, a, b *end) {
					m, e := way.register(t, b, n)
					to := transport.Segment{Key: m.Key(), Length: n}
					last := make(chan error)
					go func() { last <- way.write(a, src, &to) }()
					for atomic.LoadUint64(&e.puts) == 0 {
					}
					mem := m.Bytes()
					if atomic.LoadUint64(&e.puts) != 0 {
						struck++
					}
					require.NoError(t, m.Deregister())
					clear(mem)
					require.ErrorIs(t, <-last, way.refused)
					require.Equal(t, n, bytes.Count(mem, []byte{0}), "bytes were written after Deregister")
				})
			}
		})
	}
}

// stop has an end stand still in the middle of a Put.
func stop(e *end, at *entry) (goOn func()) {
	e.qp.beginPlacing()
	atomic.AddUint64(&at.puts, 1)
	return func() {
		atomic.AddUint64(&at.puts, ^uint64(0))
		e.qp.endPlacing()
	}
}

func TestPut_DeregisterWaitsForItsEnd(t *testing.T) {
	eachFence(t, func(t *testing.T, a, b *end) {
		m, e := outside(t, b, 100)
		goOn := stop(a, e)
		var ended atomic.Bool
		done := make(chan bool)
		go func() {
			err := m.Deregister()
			done <- err == nil && ended.Load()
		}()
		for atomic.LoadUint64(&e.key) != 0 {
		}
		time.Sleep(3 * writerWait)
		ended.Store(true)
		goOn()
		require.True(t, <-done)
	})
}

// A peer that was counted and has ended is not waited for.
func TestPut_DeregisterForgetsWhoHasEnded(t *testing.T) {
	_, b := couple(t, Options{})
	m, e := outside(t, b, 100)
	atomic.AddUint64(&e.puts, 1)
	require.NoError(t, m.Deregister())
	require.Zero(t, atomic.LoadUint64(&e.puts))
}

// A peer that is in the middle of a Put is not killed as long as it is known to run.
func TestPut_WhoRunsIsNotKilled(t *testing.T) {
	var runs atomic.Bool
	a, b := couple(t, Options{Running: func(uint32) bool { return runs.Load() }})
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	b.qp.peer.outside.Pid = child.Process.Pid
	_, e := outside(t, b, 100)
	t.Cleanup(stop(a, e))
	w := putWait{first: b.dev.activeWriters(), last: time.Now(), lasted: time.Hour}
	runs.Store(true)
	require.True(t, b.dev.probeWriters(&w))
	require.False(t, w.killed)
	require.Equal(t, time.Hour, w.lasted)
	runs.Store(false)
	require.True(t, b.dev.probeWriters(&w))
	require.Error(t, child.Wait())
}

// A peer that does not come to the end of its Put is killed.
func TestPut_WhoStaysInItIsKilled(t *testing.T) {
	for name, register := range map[string]func(*testing.T, *end, int) (transport.MR, *entry){
		"memory of the program": outside, "memory of the arena": inside,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := couple(t, Options{PeerTimeout: MinPeerTimeout})
			child := exec.Command("sleep", "1000")
			require.NoError(t, child.Start())
			b.qp.peer.outside.Pid = child.Process.Pid
			m, e := register(t, b, 100)
			goOn := stop(a, e)
			done := make(chan error)
			go func() { done <- m.Deregister() }()
			require.Error(t, child.Wait())
			require.Equal(t, syscall.SIGKILL, child.ProcessState.Sys().(syscall.WaitStatus).Signal())
			goOn()
			require.NoError(t, <-done)
		})
	}
}

// Where that is in vain the device says that this process can only end.
func TestPut_WhoCannotBeKilledIsFatal(t *testing.T) {
	told := make(chan error, 1)
	o := Options{PeerTimeout: MinPeerTimeout, Fatal: func(_ uint32, err error) { told <- err }}
	a, b := couple(t, o)
	b.qp.peer.outside.Pid = 1 // which nobody kills
	m, e := outside(t, b, 100)
	goOn := stop(a, e)
	done := make(chan error)
	go func() { done <- m.Deregister() }()
	err := <-told
	require.ErrorIs(t, err, transport.ErrPeerLost)
	require.ErrorContains(t, err, "nor after its process was killed")
	select {
	case <-done:
		t.Fatal("the memory is given back while a peer may write there")
	default:
	}
	goOn()
	require.NoError(t, <-done)
}

// Where the system refuses to write the peer's memory, a Put says so, and is not tried again.
func TestPut_IsRefusedWhereThePeersMemoryCannotBeWritten(t *testing.T) {
	a, b := couple(t, Options{})
	require.True(t, a.qp.peer.foreign, "this system allows it")
	m, _ := outside(t, b, 100)
	a.qp.peer.outside.Pid = 1 << 30
	to := transport.Segment{Key: m.Key(), Length: 100}
	for range 2 {
		require.ErrorIs(t, a.qp.Put(make([]byte, 100), &to), transport.ErrAccess)
		require.False(t, a.qp.peer.foreign)
	}
	require.NoError(t, m.Deregister())
}
