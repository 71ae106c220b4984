package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// A rank that finds a message of the wrong length fails, and still sends its own to the message's sender, which
// is in the same call and waits for it.
func TestCollective_WrongLengthDoesNotWithdrawTheAnswer(t *testing.T) {
	const n = 300_000 // bytes: only announced until the receiver asks for them
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		in, out := make([]byte, n), [2][]byte{make([]byte, n), make([]byte, n)}
		pattern(in, 0, 3)
		begin := func(rank, bytes int) Request {
			blocks := func(n int) *coll.Blocks {
				counts := []int{n, n}
				counts[rank] = 0
				return &coll.Blocks{Counts: counts, Displs: []int{0, 0}, ElemSize: 1}
			}
			call := coll.Call{Operation: coll.OpAlltoallv, Rank: rank, Size: 2, ElemSize: 1, Send: blocks(bytes),
				Recv: blocks(n)}
			c := &Collective{Call: call, Context: world0, Input: in, Output: out[rank], Signature: call.Signature(),
				Tag: CollectiveTag(false, 1, call.Operation, call.Signature())}
			c.Call.Build(&c.Schedule)
			r, err := w[rank].Collectives.Start(c)
			require.NoError(t, err)
			return r
		}
		first := begin(0, 1) // an eager message
		drive(t, w, func() bool { return unexpected(w[1]) == 1 })
		for range 200 { // so that the answer has to wait for room in the ring
			_, err := w[1].Sends.Isend(world0, in[:1000], 0, 1)
			require.NoError(t, err)
		}
		second := begin(1, n) // fails at once
		drive(t, w[1:], func() bool { return w[1].failing(second) })
		drive(t, w, func() bool { return w[0].isDone(first) && w[1].isDone(second) })
		_, err := w[0].Requests.Wait(first)
		require.NoError(t, err)
		require.Equal(t, in, out[0])
		_, err = w[1].Requests.Wait(second)
		require.ErrorIs(t, err, ErrCount)
	})
}

// failing tells whether a collective has found an error.
func (e *Engine) failing(h Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.Requests.find(h)
	return r.completed() || r.collective.failing
}
