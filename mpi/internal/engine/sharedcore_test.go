package engine

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/transport/shm"
)

// afterBarrier has a rank of three look for the messages of a Barrier, and then for those of a call that
// receives from two ranks, or sends to them; it returns how often the rank yields in the Barrier.
func afterBarrier(h *handover, kind coll.Kind, found bool) int {
	c := &Collective{mailboxes: &Mailboxes{peers: make([]mailbox, 3)}}
	c.mailboxes.peers[1].elsewhere = true
	c.Call.Operation = coll.OpBarrier
	yields := h.yields(c, true)
	c.Call.Operation = coll.OpBcast
	c.exchange, c.due = []coll.Step{{Kind: kind, Peer: 1}, {Kind: kind, Peer: 2}}, 3
	h.yields(c, found)
	return yields
}

// TestHandover_BeforeACallThatWaits: a rank hands its core over before it leaves a Barrier only while the call
// that follows receives, and would wait for it.
func TestHandover_BeforeACallThatWaits(t *testing.T) {
	var h handover
	handsOver := func() {
		t.Helper()
		for range handoverVotes {
			require.Zero(t, afterBarrier(&h, coll.Recv, false))
		}
		require.Equal(t, handoverYields, afterBarrier(&h, coll.Recv, true))
		require.Equal(t, handoverYields, afterBarrier(&h, coll.Recv, true), "its messages are there since")
		require.Equal(t, 2, h.awaited, "of the awaited ranks, that on the same processor")
		require.False(t, h.away)
	}
	handsOver()
	afterBarrier(&h, coll.Send, true)
	require.Zero(t, afterBarrier(&h, coll.Send, true), "others wait for this rank")
	h = handover{}
	handsOver()
	without := 0
	for range 2 * handoverVotes * handoverSampleEvery {
		if afterBarrier(&h, coll.Recv, true) == 0 {
			without++
		}
	}
	require.Greater(t, without, handoverSampleEvery, "the messages come without that too")
}

// TestMailboxes_RankBeside: ranks whose only processors differ are elsewhere for each other, and a rank waits
// for those beside it first.
func TestMailboxes_RankBeside(t *testing.T) {
	accepted := func(processors ...uint64) *Mailboxes {
		offers := make([]byte, len(processors)*mailboxOffer)
		for rank, p := range processors {
			offers[rank*mailboxOffer] = 1
			binary.LittleEndian.PutUint64(offers[rank*mailboxOffer+16:], p)
		}
		w := world(t, shmDevices(t, len(processors), shm.Options{}))
		m := w[0].MailboxCalls.New(100, 0, nil, 0, len(processors), FirstMailboxBytes)
		require.NoError(t, m.beginSetup())
		w[0].mu.Lock()
		defer w[0].mu.Unlock()
		require.True(t, m.acceptLocked(offers))
		return m
	}
	m := accepted(7, 7, 8, 0)
	require.True(t, m.handover.on)
	require.False(t, m.peers[1].elsewhere)
	require.True(t, m.peers[2].elsewhere)
	require.False(t, m.peers[3].elsewhere, "it may run on any processor")
	c := &Collective{mailboxes: m, due: 3,
		exchange: []coll.Step{{Kind: coll.Recv, Peer: 2}, {Kind: coll.Recv, Peer: 1}}}
	require.Equal(t, 1, c.awaitedBeside())
	c.due = 1
	require.Equal(t, -1, c.awaitedBeside())
	m = accepted(0, 7)
	require.False(t, m.handover.on)
	require.False(t, m.peers[1].elsewhere)
}

// TestMailboxes_RanksOfTwoProcessors: collectives have the same results when ranks wait for others' processors,
// and hand theirs over after Barriers.
func TestMailboxes_RanksOfTwoProcessors(t *testing.T) {
	const n = 4
	ranks(t, world(t, shmDevices(t, n, shm.Options{})), func(e *Engine) error {
		m := e.MailboxCalls.New(100, CollectiveTag(false, 0, OperationMailboxes, 0), nil, e.rank, n, MailboxBytes(n))
		if ready, err := m.Prepare(nil); err != nil || !ready {
			return fmt.Errorf("no mailboxes: %v", err)
		}
		e.mu.Lock()
		m.handover.on = true
		for rank := range m.peers {
			m.peers[rank].elsewhere = rank%2 != e.rank%2
		}
		e.mu.Unlock()
		number := 0
		for _, o := range []coll.Operation{coll.OpBcast, coll.OpReduce, coll.OpAllreduce} {
			for range 300 {
				for _, o := range []coll.Operation{coll.OpBarrier, o} {
					number++
					count := 3
					if o == coll.OpBarrier {
						count = 0
					}
					if err := checkedCall(e, m, o, count, 0, number, false); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}
