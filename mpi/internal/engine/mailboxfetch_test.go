package engine

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// TestLineFetch_PaysWhereLinesTakeLonger: one sample decides at first, and more than one against it stops the
// fetches.
func TestLineFetch_PaysWhereLinesTakeLonger(t *testing.T) {
	f := newLineFetch(2)
	f.look = 100
	require.False(t, f.pays())
	f.vote(67)
	require.False(t, f.pays(), "the line would come early")
	f.vote(66)
	require.False(t, f.pays(), "one sample for it, one against it")
	for range 10 {
		f.vote(66)
	}
	require.True(t, f.pays())
	f.vote(1000)
	require.True(t, f.pays(), "one call may have been interrupted")
	for range 10 {
		f.vote(1000)
	}
	require.False(t, f.pays())
	for range fetchVotes + 1 {
		f.vote(66)
	}
	require.True(t, f.pays())
}

// TestMailboxes_SampleOfTwoExchanges: a rank that waits times the look that finds the message, and then how
// long it takes to its next message.
func TestMailboxes_SampleOfTwoExchanges(t *testing.T) {
	if sys.Ticks() == 0 {
		t.Skip("this processor's ticks are not known")
	}
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		f := &m.fetch
		require.EqualValues(t, fetchSampleEvery, f.due)
		m.exchange = 70
		word := mailboxFlag(69, 0)
		m.timeLookLocked(&word)
		require.EqualValues(t, 70+fetchSampleEvery, f.due)
		require.False(t, f.on, "the message has not come")
		word = mailboxFlag(70, 0)
		m.timeLookLocked(&word)
		require.True(t, f.on)
		require.Positive(t, f.look)
		c := &Collective{exchange: []coll.Step{{Kind: coll.Recv}}}
		m.fetchNextLocked(c)
		require.True(t, f.on)
		require.Zero(t, f.votes)
		m.exchange++
		f.begins()
		require.NotZero(t, f.votes)
		f.votes = -1
		m.fetchNextLocked(c)
		require.False(t, f.on)
		f.votes = 1
		m.fetchNextLocked(c)
		require.True(t, f.on, "fetching pays")
		return nil
	})
	more := newLineFetch(3)
	require.EqualValues(t, uint64(math.MaxUint64), more.due, "ranks without a single peer do not fetch")
}

// TestCollective_SentBytes: of the message of an exchange with its flag, in whole lines.
func TestCollective_SentBytes(t *testing.T) {
	c := &Collective{Call: coll.Call{Operation: coll.OpBcast}}
	c.memory[coll.Output] = make([]byte, 100)
	recv := coll.Step{Kind: coll.Recv, Dst: coll.Span{Buf: coll.Output, Len: 100}}
	send := coll.Step{Kind: coll.Send, Src: coll.Span{Buf: coll.Output, Len: 100}}
	require.Zero(t, c.sentBytes(nil))
	c.exchange = []coll.Step{recv}
	require.Zero(t, c.sentBytes(nil))
	c.exchange = []coll.Step{recv, send}
	require.Equal(t, 2*mailboxLine, c.sentBytes(nil))
}

// TestMailboxes_NextMessage: a rank expects to send as many bytes as two exchanges ago.
func TestMailboxes_NextMessage(t *testing.T) {
	withMailboxes(t, func(e *Engine, m *Mailboxes) error {
		// the addresses are those of the memory that was written last
		if err := checkedCall(e, m, coll.OpBarrier, 0, 0, 1, false); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		b := &m.peers[1-m.rank]
		area := b.peer.ch.QP().PrefetchAddr(b.mine)
		next := (m.exchange + 1) & 1
		m.fetch.votes = 1
		m.fetch.sent[next] = 3 * mailboxLine
		first, n := m.nextMessageLocked()
		require.Equal(t, 3*mailboxLine, n)
		require.EqualValues(t, m.slotEnd(m.exchange+1)-n, first-area, "the message ends where its slot does")
		m.fetch.sent[next] = fetchMost + mailboxLine
		first, _ = m.nextMessageLocked()
		require.Zero(t, first, "too long")
		m.fetch.sent = [2]int{mailboxLine, mailboxLine}
		m.fetch.sent[next] = 0
		first, _ = m.nextMessageLocked()
		require.Zero(t, first, "it sends nothing in every other exchange")
		m.fetch.sent[next] = mailboxLine
		m.fetch.votes = 0
		first, _ = m.nextMessageLocked()
		require.Zero(t, first, "it does not pay")
		return nil
	})
}
