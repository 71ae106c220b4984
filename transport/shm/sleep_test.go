package shm

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/place"
)

// Two ends that write to each other and sleep as soon as they see nothing: no Write is slept over, though it
// tells nobody that looks by himself.
func TestSleep_NoWriteIsSleptOver(t *testing.T) {
	const rounds = 3000
	eachFence(t, func(t *testing.T, a, b *end) {
		ma, mb := a.alloc(t, 64), b.alloc(t, 64)
		side := func(e *end, from, to transport.MR, first bool) error {
			src, err := e.pd.Alloc(64, everyRight)
			if err != nil {
				return err
			}
			wr := writeOf(src, to, 64)
			for i := uint64(1); i <= rounds; i++ {
				if first {
					*place.Word(src.Bytes(), 56) = i
					if err := e.qp.PostSend(wr); err != nil {
						return err
					}
				}
				for atomic.LoadUint64(place.Word(from.Bytes(), 56)) != i {
					e.cq.Poll(nil)
					var qps [4]transport.QPN
					if e.cq.Placed(qps[:]) > 0 {
						continue
					}
					e.cq.Arm()
					now := time.Now()
					if err := e.cq.Wait(2 * time.Minute); err != nil {
						return err
					}
					if time.Since(now) > time.Minute {
						return fmt.Errorf("round %d was slept over", i)
					}
				}
				if !first {
					*place.Word(src.Bytes(), 56) = i
					if err := e.qp.PostSend(wr); err != nil {
						return err
					}
				}
			}
			return nil
		}
		ended := make(chan error, 2)
		go func() { ended <- side(a, ma, mb, true) }()
		go func() { ended <- side(b, mb, ma, false) }()
		require.NoError(t, errors.Join(<-ended, <-ended)) // both have ended before the devices are closed
	})
}

// Whoever waits for a Read of what the peer has yet to place sleeps, and is woken when the peer has placed it.
func TestSleep_ReadWaitsForWritesThatThePeerPlaces(t *testing.T) {
	a, b := couple(t, Options{})
	far, err := b.pd.Register(make([]byte, 64), everyRight) // not mapped here: Writes go through the ring
	require.NoError(t, err)
	src, dst := a.alloc(t, 64), a.alloc(t, 64)
	src.Bytes()[63] = 7
	require.NoError(t, a.qp.PostSend(writeOf(src, far, 64)))
	read := writeOf(dst, far, 64)
	read.Op, read.Flags = transport.OpRead, transport.FlagSignaled
	require.NoError(t, a.qp.PostSend(read))

	var wc [1]transport.WC
	a.cq.Arm()
	var qps [4]transport.QPN
	for more := true; more; more = a.cq.Placed(qps[:]) > 0 { // once after Arm, whatever has come
		require.Zero(t, a.cq.Poll(wc[:]))
	}
	entered, err := a.cq.EnterWait()
	require.NoError(t, err)
	require.True(t, entered, "there is nothing to do here, and the wait ends at once")
	b.cq.Poll(nil)
	require.EqualValues(t, 7, far.Bytes()[63])
	require.NoError(t, a.cq.(*cq).Poller().Wait(-1))
	a.cq.LeaveWait()
	for a.cq.Poll(wc[:]) == 0 {
		b.cq.Poll(nil)
	}
	require.Equal(t, transport.StatusSuccess, wc[0].Status)
	require.EqualValues(t, 7, dst.Bytes()[63])
}

// crowd is a completion queue with a queue pair for each of many peers.
func crowd(t *testing.T, n int) (hub *end, others []*end) {
	t.Helper()
	var list []*end
	var eps []transport.Endpoint
	for i := range n + 1 {
		d, err := New(Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		e := &end{dev: d, made: make(chan transport.QP, n)}
		e.pd, err = d.AllocPD()
		require.NoError(t, err)
		e.cq, err = d.CreateCQ(1024, 0)
		require.NoError(t, err)
		ep, err := d.Listen(transport.Identity{Job: "crowd", Rank: uint32(i), Size: uint32(n + 1)}, e)
		require.NoError(t, err)
		list, eps = append(list, e), append(eps, ep)
	}
	for i, e := range list[1:] {
		require.NoError(t, eps[i+1].Connect(context.Background(), 0, eps[0].Addr()))
		e.qp = (<-e.made).(*qp)
		<-list[0].made
	}
	list[0].attached(n)
	return list[0], list[1:]
}

// Up to so many queue pairs nobody tells anything; with one more everybody does, each Write once, and a pass
// looks at those alone.
func TestPlaced_TellsOfManyAndNotOfFew(t *testing.T) {
	for _, n := range []int{maxPolledQPs, maxPolledQPs + 1, 3 * maxPolledQPs} {
		hub, others := crowd(t, n)
		m := hub.alloc(t, 64*n)
		qps := make([]transport.QPN, 2*n)
		for hub.cq.Placed(qps) > 0 || hub.cq.Poll(nil) > 0 { // what may have come before it was told
		}
		hub.cq.Poll(nil)
		for round := range 3 {
			for i, e := range others {
				src := e.alloc(t, 64)
				wr := writeOf(src, m, 64)
				wr.Remote[0].Offset = uint64(64 * i)
				src.Bytes()[63] = byte(round + i + 1)
				require.NoError(t, e.qp.PostSend(wr))
				if i%3 == 0 {
					require.NoError(t, e.qp.PostSend(wr)) // it is told of once all the same
				}
				require.Equal(t, byte(round+i+1), m.Bytes()[64*i+63])
			}
			hub.cq.Poll(nil)
			k := hub.cq.Placed(qps)
			if n <= maxPolledQPs {
				require.Zero(t, k)
				continue
			}
			require.Equal(t, n, k)
			seen := map[transport.QPN]bool{}
			for _, q := range qps[:k] {
				seen[q] = true
			}
			require.Len(t, seen, n)
			require.False(t, hub.cq.(*cq).doorbell.pending())
		}
	}
}

// A queue that is told of everything looks at a queue pair that joins it, and at no other; nor does the peer
// have to learn that it is to tell, which would take a barrier of all processes.
func TestAttach_LeavesTheOthersAlone(t *testing.T) {
	hub, _ := crowd(t, maxPolledQPs+2)
	c := hub.cq.(*cq)
	for c.Poll(nil); len(c.active) > 0; {
		c.Poll(nil)
	}
	q := c.qps[3]
	c.detach(q)
	c.attach(q)
	require.Len(t, c.active, 1)
	require.Same(t, q, c.active[0])

	in, err := newReceiveBlock(c.dev.arena)
	require.NoError(t, err)
	require.EqualValues(t, notifyTell, in.block.notifyEnable)
	c.dev.arena.putBlock(in.off)
}

// A queue pair that has something to do is driven once in a pass, however often it is found to have.
func TestActivate_ListsAQueuePairOnce(t *testing.T) {
	hub, _ := crowd(t, maxPolledQPs+1)
	c := hub.cq.(*cq)
	c.active = nil
	for range 3 {
		c.activate(c.qps[0])
		c.reactivate(c.qps[0])
		c.qps[0].busy = false
		c.qps[0].work()
	}
	require.Len(t, c.active, 1)
}
