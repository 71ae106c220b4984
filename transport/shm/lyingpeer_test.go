package shm

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// An index by which more stands in the ring than it holds is a violation, though every frame that can be read
// there is right: else a peer would have us read the same frames for as long as it likes.
func TestRing_IndexThatIsTooLargeEndsTheConnection(t *testing.T) {
	for name, tail := range map[string]uint64{"a frame more": ringSize + headerSize, "much more": 1 << 40,
		"and the end": 1<<40 | tailEnded} {
		t.Run(name, func(t *testing.T) {
			_, y := couple(t, Options{Arena: minArena})
			m := y.alloc(t, 64)
			out := outRing{controlBlock: y.qp.in.controlBlock}
			for range ringSize / headerSize {
				out.begin(header{op: frameWrite, a: uint64(m.Key())})
			}
			sys.StoreRelease(&out.controlBlock.tail, tail)
			done := make(chan struct{})
			go func() { y.cq.Poll(nil); close(done) }()
			select {
			case <-done:
			case <-time.After(2 * time.Minute):
				t.Fatal("it goes on reading")
			}
			require.ErrorIs(t, y.qp.Err(), transport.ErrProtocol)
			require.ErrorContains(t, y.qp.Err(), "rank 0")
		})
	}
}

// A peer that has more Reads outstanding than were negotiated is terminated, whatever the number.
func TestReads_R5_PeerThatExceedsTheDepthIsTerminated(t *testing.T) {
	for _, depth := range []uint64{1, 2, 8} {
		for _, more := range []uint64{0, 1} {
			x, y := couple(t, Options{Arena: minArena, NoCMA: true})
			y.qp.answer.maxReads, x.qp.reads.maxReads = depth, depth+more
			// Memory that x cannot reach by itself: y is asked for it.
			m, err := y.pd.Register(make([]byte, 64), transport.RemoteRead)
			require.NoError(t, err)
			dst := x.alloc(t, 64)
			for range depth + more {
				require.NoError(t, x.qp.PostSend(&transport.SendWR{Op: transport.OpRead,
					Flags:  transport.FlagSignaled,
					Local:  []transport.SGE{{MR: dst, Length: 64}},
					Remote: []transport.Segment{{Key: m.Key(), Length: 64}}}))
			}
			x.cq.Poll(nil)
			y.cq.Poll(nil)
			if more == 0 {
				require.NoError(t, y.qp.Err())
				continue
			}
			require.ErrorIs(t, y.qp.Err(), transport.ErrProtocol)
			require.ErrorContains(t, y.qp.Err(),
				fmt.Sprintf("more Reads and Atomics outstanding than agreed: %d", depth))
		}
	}
}

// A peer that has failed may go on writing into the block of its connection, whatever it says: no other
// connection gets the block while its process is there.
func TestConnection_BlockOfAFailedPeerServesNobodyElse(t *testing.T) {
	for name, end := range map[string]func(hub, liar *qp){
		"it says that it has ended": func(_, liar *qp) { atomic.OrUint64(&liar.out.controlBlock.tail, tailEnded) },
		"it breaks a rule": func(_, liar *qp) {
			atomic.StoreUint64(&liar.out.controlBlock.tail, 1<<30|tailEnded)
		},
		"it is given up": func(hub, liar *qp) {
			hub.Abort(nil)
			atomic.OrUint64(&liar.out.controlBlock.tail, tailEnded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			hub, others := crowd(t, 1)
			theirs := hub.cq.(*cq).qps[0]
			liar, block := others[0].qp, theirs.conn.in
			end(theirs, liar)
			require.Eventually(t, func() bool {
				hub.cq.Poll(nil)
				return theirs.State() == transport.StateError && hub.held() == 0
			}, 2*time.Minute, time.Millisecond)
			again := func() (offs []int64) {
				for range blocksAtOnce {
					off, err := hub.dev.arena.block()
					require.NoError(t, err)
					offs = append(offs, off)
				}
				for _, off := range offs {
					hub.dev.arena.putBlock(off)
				}
				return offs
			}
			require.NotContains(t, again(), block.off)
			require.NoError(t, others[0].dev.Close())
			require.Eventually(t, func() bool {
				for _, off := range again() {
					if off == block.off {
						return true
					}
				}
				return false
			}, 2*time.Minute, 10*time.Millisecond)
		})
	}
}

// blocksAtOnce is more than the hub has free.
const blocksAtOnce = 64

// A connection that is closed in order leaves its block to the next one at once.
func TestConnection_BlockOfAClosedConnectionServesAgain(t *testing.T) {
	hub, others := crowd(t, 1)
	theirs, their := hub.cq.(*cq).qps[0], others[0]
	off := theirs.conn.in.off
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	theirs.Close()
	their.qp.Close()
	for theirs.State() != transport.StateClosed || hub.held() > 0 {
		require.NoError(t, ctx.Err())
		hub.cq.Poll(nil)
		their.cq.Poll(nil)
	}
	next, err := hub.dev.arena.block()
	require.NoError(t, err)
	require.Equal(t, off, next)
}
