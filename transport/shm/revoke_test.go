package shm

import (
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// eachFence runs a test with the system's barrier for others, and without.
func eachFence(t *testing.T, test func(t *testing.T, a, b *end)) {
	for name, asymmetric := range map[string]bool{"barrier for others": true,
		"barriers of one's own": false} {
		t.Run(name, func(t *testing.T) {
			a, b := couple(t, Options{}, func(d *Device) { d.asymmetric = d.asymmetric && asymmetric })
			require.Equal(t, !asymmetric, a.qp.fenced)
			test(t, a, b)
		})
	}
}

// A key that is taken back while the peer writes through it: memory that is handed out again is the next
// owner's alone.
func TestRevoke_AsThePeerWrites(t *testing.T) {
	const n = 256
	struck := 0
	for round := range 60 {
		eachFence(t, func(t *testing.T, a, b *end) {
			src := a.alloc(t, n)
			for i := range src.Bytes() {
				src.Bytes()[i] = 0xee
			}
			m := b.alloc(t, n)
			wr := writeOf(src, m, n)
			var writing sync.WaitGroup
			begun := make(chan struct{})
			writing.Go(func() {
				for i := 0; a.qp.PostSend(wr) == nil; i++ {
					if i == round {
						close(begun)
					}
				}
			})
			<-begun
			at := addressOf(m.Bytes())
			require.NoError(t, m.Deregister())
			next := b.alloc(t, n)
			if addressOf(next.Bytes()) == at {
				struck++
			}
			writing.Wait()
			for i, x := range next.Bytes() {
				require.Zero(t, x, "byte %d of other memory was written", i)
			}
			require.ErrorIs(t, a.qp.Err(), transport.ErrAccess)
		})
	}
	require.NotZero(t, struck, "no memory was used again")
}

// Memory whose writer does not leave stays out of use until the peer's end, and serves again then.
func TestRevoke_QuarantineEndsWithThePeer(t *testing.T) {
	a, b := couple(t, Options{})
	m := b.alloc(t, 100)
	at := addressOf(m.Bytes())
	a.qp.beginPlacing() // and stands there
	require.NoError(t, m.Deregister())
	other := b.alloc(t, 100)
	require.NotEqual(t, at, addressOf(other.Bytes()))
	require.Len(t, b.dev.arena.quarantine, 1)
	a.qp.Abort(nil)
	for b.qp.State() != transport.StateError || b.held() > 0 {
		b.cq.Poll(nil)
	}
	again := b.alloc(t, 100)
	require.Equal(t, at, addressOf(again.Bytes()))
	require.Empty(t, b.dev.arena.quarantine)
}

// A peer that has closed in order places nothing any more: memory is free at once, whatever its mark says.
func TestRevoke_ClosedPeersAreNotWaitedFor(t *testing.T) {
	a, b := couple(t, Options{})
	m := b.alloc(t, 100)
	at, in := addressOf(m.Bytes()), b.qp.conn.in
	require.True(t, in.mayPlace())
	a.qp.Close()
	b.qp.Close()
	for b.qp.State() != transport.StateClosed { // a has not heard of it, and still uses b's memory
		b.cq.Poll(nil)
	}
	require.False(t, in.ended())
	require.False(t, in.mayPlace())
	a.qp.beginPlacing()
	require.NoError(t, m.Deregister())
	require.Empty(t, b.dev.arena.quarantine)
	require.Equal(t, at, addressOf(b.alloc(t, 100).Bytes()))
}

// After a peer's end is known nothing of it is placed, even if it has not heard of ours.
func TestRevoke_NothingIsPlacedAfterAnError(t *testing.T) {
	a, b := couple(t, Options{})
	src, m := a.alloc(t, 64), b.alloc(t, 64)
	src.Bytes()[5] = 1
	wr := writeOf(src, m, 64)
	require.NoError(t, a.qp.PostSend(wr))
	require.EqualValues(t, 1, m.Bytes()[5])
	b.qp.Abort(nil)
	src.Bytes()[5] = 2
	require.NoError(t, a.qp.PostSend(wr)) // it waits for the end that is on its way
	require.EqualValues(t, 1, m.Bytes()[5])
	for a.qp.State() != transport.StateError {
		a.cq.Poll(nil)
	}
	require.EqualValues(t, 1, m.Bytes()[5])
}

// A queue pair that ends while the peer is in the middle of a Write completes what is posted when the peer has
// finished, and not before: the program may use its memory from then on.
func TestRevoke_CompletionsWaitForTheWriter(t *testing.T) {
	eachFence(t, func(t *testing.T, a, b *end) {
		require.NoError(t, b.qp.PostRecv(&transport.RecvWR{ID: 1}))
		a.qp.beginPlacing() // and stands there
		var finished atomic.Bool
		done := make(chan bool)
		block := b.qp.conn.in.block
		go func() {
			b.qp.Abort(nil)
			done <- finished.Load()
		}()
		for atomic.LoadUint64(&block.notifyEnable)&notifyClosed == 0 {
		}
		time.Sleep(3 * writerWait)
		finished.Store(true)
		a.qp.endPlacing()
		require.True(t, <-done, "the end came before the writer's")
		var wcs [2]transport.WC
		require.Equal(t, 1, b.cq.Poll(wcs[:]))
		require.Equal(t, transport.StatusFlushed, wcs[0].Status)
	})
}

// A peer that does not finish is killed, even if it is known to run.
func TestRevoke_WriterThatStaysIsKilled(t *testing.T) {
	a, b := couple(t, Options{PeerTimeout: MinPeerTimeout, Running: func(uint32) bool { return true }})
	child := exec.Command("sleep", "1000")
	require.NoError(t, child.Start())
	b.qp.peer.outside.Pid = child.Process.Pid
	a.qp.beginPlacing()
	done := make(chan struct{})
	go func() {
		b.qp.Abort(nil)
		close(done)
	}()
	require.Error(t, child.Wait())
	require.Equal(t, syscall.SIGKILL, child.ProcessState.Sys().(syscall.WaitStatus).Signal())
	a.qp.endPlacing() // which the end of a process is seen as
	<-done
	require.Equal(t, transport.StateError, b.qp.State())
}

// Where the system refuses to read the peer's memory, or another process has the peer's number, Reads go
// through the peer.
func TestRead_FallsBackWhereThePeersMemoryCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(*peerMapping){
		"refused": func(f *peerMapping) { f.outside.Pid = 1 << 30 },
		"another process": func(f *peerMapping) {
			f.outside = sys.Foreign{Pid: f.outside.Pid, Proof: f.outside.Proof,
				Secret: [32]byte{1}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 100_000
			a, b := couple(t, Options{})
			require.True(t, a.qp.peer.foreign, "this system allows it")
			src, err := b.pd.Register(make([]byte, n), transport.RemoteRead)
			require.NoError(t, err)
			for i := range src.Bytes() {
				src.Bytes()[i] = byte(i * 13)
			}
			dst := a.alloc(t, n)
			spoil(a.qp.peer)
			require.NoError(t, a.qp.PostSend(&transport.SendWR{Op: transport.OpRead,
				Flags:  transport.FlagSignaled,
				Local:  []transport.SGE{{MR: dst, Length: n}},
				Remote: []transport.Segment{{Key: src.Key(), Length: n}}}))
			var wc [1]transport.WC
			for a.cq.Poll(wc[:]) == 0 {
				b.cq.Poll(nil)
			}
			require.Equal(t, transport.StatusSuccess, wc[0].Status)
			require.Equal(t, src.Bytes(), dst.Bytes())
			require.False(t, a.qp.peer.foreign, "it is not tried again")
		})
	}
}
