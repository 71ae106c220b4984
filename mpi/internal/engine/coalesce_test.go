package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/transport/shm"
)

// streamWorld returns two ranks that poll mapped rings with slots of 16 KiB, and rank 0's peer.
func streamWorld(t *testing.T) ([]*Engine, *peer) {
	w := worldOf(t, shmDevices(t, 2, shm.Options{}),
		Config{SpinTime: time.Second, Channel: channel.Config{Phases: []int{640, 16448}}})
	connected(t, w)
	withoutTimers(w)
	require.True(t, w[0].peers[1].polled)
	long := make([]byte, 3000)
	h, err := w[0].Sends.Isend(world0, long, 1, 0)
	require.NoError(t, err)
	r, err := w[1].Recvs.Irecv(world0, long, 0, 0, 1)
	require.NoError(t, err)
	drive(t, w, func() bool { return w[0].isDone(h) && w[1].isDone(r) })
	require.Equal(t, 1, w[0].peers[1].ch.Phase())
	return w, w[0].peers[1]
}

// receiveStream receives n messages of the given length.
func receiveStream(t *testing.T, w []*Engine, n, length int) {
	for i := range n {
		receiveOne(t, w, i, length)
	}
	passes := 0
	drive(t, w, func() bool { passes++; return passes > 20 }) // all credit returns
}

// TestStream_SharesSlots: of a stream to a peer that polls, messages of a KiB share slots, too; each is what
// was sent, though its buffer is used again at once.
func TestStream_SharesSlots(t *testing.T) {
	w, p := streamWorld(t)
	const n = 60
	for _, length := range []int{eager.MaxBatched + 1, 1000, eager.MaxBatchedMapped} {
		buf, before := make([]byte, length), p.ch.Stats().Sent
		for i := range n {
			pattern(buf, 0, i)
			h, err := w[0].Sends.Isend(world0, buf, 1, 1)
			require.NoError(t, err)
			require.True(t, w[0].isDone(h))
		}
		drive(t, w[:1], func() bool { return p.batch.Count() == 0 })
		require.LessOrEqual(t, p.ch.Stats().Sent-before, uint64(longBurst+(n-longBurst)/3+2), "%d bytes", length)
		receiveStream(t, w, n, length)
	}
}

// TestStream_KeepsItsSlots: while a batch waits for room its channel does not go back to smaller slots, which
// would not hold its messages.
func TestStream_KeepsItsSlots(t *testing.T) {
	w, p := streamWorld(t)
	buf, n := make([]byte, eager.MaxBatchedMapped), 0
	for waits := false; !waits; n++ {
		require.Less(t, n, 1000)
		pattern(buf, 0, n)
		p.burst.previous = longBurst
		h, err := w[0].Sends.Isend(world0, buf, 1, 1)
		require.NoError(t, err)
		require.True(t, w[0].isDone(h))
		w[0].mu.Lock()
		w[0].coalescer.flush()
		waits = p.batch.Count() > 0
		w[0].mu.Unlock()
	}
	for range 6 {
		w[0].idleShrinker.tick()
		require.NotZero(t, p.batch.Count())
	}
	require.NotEqual(t, channel.DueResize, p.ch.Due())
	receiveStream(t, w, n, len(buf))
}

// TestStream_LongMessagesGoThroughTheRing: where costs say so, nonblocking sends of messages that are too long
// for a slot otherwise go through the ring while the receiver keeps up. One that does not finds at most half
// of its ring full of them; short messages still have room; and all come in order.
func TestStream_LongMessagesGoThroughTheRing(t *testing.T) {
	w := throughRing(t, Config{})
	connected(t, w)
	p := w[0].peers[1]
	if p.eagerLimit > copycost.MaxStreamed {
		p.eagerLimit = 16 << 10
	}
	buf, sent := make([]byte, copycost.MaxStreamed), 0
	send := func(n int) Request {
		pattern(buf[:n], 0, sent)
		sent++
		h, err := w[0].Sends.Isend(world0, buf[:n], 1, 1)
		require.NoError(t, err)
		return h
	}
	lengths := []int{20_000, copycost.MaxStreamed, 40_001}
	for round := range 8 { // the first ones make the ring grow
		announced := p.stats.Rendezvous
		for _, n := range lengths {
			h := send(n)
			require.True(t, round < 4 || w[0].isDone(h))
			receiveOne(t, w, sent-1, n)
			drive(t, w, func() bool { return w[0].isDone(h) })
		}
		require.True(t, round < 4 || announced == p.stats.Rendezvous)
	}

	var sends []Request
	began, announced := sent, p.stats.Rendezvous
	bufs := make([][]byte, 20)
	for i := range bufs {
		bufs[i] = make([]byte, 20_000)
		pattern(bufs[i], 0, sent)
		sent++
		h, err := w[0].Sends.Isend(world0, bufs[i], 1, 1)
		require.NoError(t, err)
		sends = append(sends, h)
	}
	half := p.ch.MaxBody() * channel.RingSlots / 2 / len(bufs[0])
	require.GreaterOrEqual(t, int(p.stats.Rendezvous-announced), len(bufs)-half-1, "the receiver does not look")
	require.Less(t, int(p.stats.Rendezvous-announced), len(bufs)-3, "the ring has room for some")
	require.True(t, w[0].isDone(send(100)))
	for i := range bufs {
		receiveOne(t, w, began+i, len(bufs[i]))
	}
	receiveOne(t, w, sent-1, 100)
	for _, h := range sends {
		drive(t, w, func() bool { return w[0].isDone(h) })
	}
}

// receiveOne receives the i-th message.
func receiveOne(t *testing.T, w []*Engine, i, length int) {
	got := make([]byte, length)
	r, err := w[1].Recvs.Irecv(world0, got, 0, 1, 1)
	require.NoError(t, err)
	drive(t, w, func() bool { return w[1].isDone(r) })
	st, err := w[1].Requests.Wait(r)
	require.NoError(t, err)
	require.Equal(t, length, st.Bytes)
	require.NoError(t, checkPattern(got, 0, i))
}
