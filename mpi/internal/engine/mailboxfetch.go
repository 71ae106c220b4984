package engine

import (
	"math"
	"sync/atomic"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// lineFetch decides whether a rank that ends an exchange fetches the lines of its next message, which its
// peer has read, for writing. That pays where a line takes longer from core to core than the rank takes to
// the next exchange: the store then finds the line on its way. Otherwise the line comes early, and the peer,
// which polls it, takes it back. So both times are sampled. This is for two ranks with a core each.
type lineFetch struct {
	due   uint64 // the first exchange that waits from this one on is a sample
	on    bool   // a sample is under way, or fetching pays
	found bool   // the current exchange is a sample, whose message was found
	look  int64  // ticks of the look that found it
	ended int64  // when the latest exchange ended, in ticks, if it was a sample; else 0
	votes int    // of samples in a row for fetching; below 0: against it
	sent  [2]int // bytes of the messages of the latest even and odd exchanges; 0 if none was sent
}

const (
	// fetchSampleEvery is odd, so that each call of a loop of two is sampled.
	fetchSampleEvery = 63
	fetchVotes       = 3 // at most, for or against
	// fetchMost is the length of the longest message whose lines are fetched. More lines come too late.
	fetchMost = 5 * mailboxLine
)

func newLineFetch(size int) lineFetch {
	if size != 2 {
		return lineFetch{due: math.MaxUint64}
	}
	return lineFetch{due: fetchSampleEvery}
}

// pays reports whether the lines of the next message are fetched.
func (f *lineFetch) pays() bool { return f.votes > 0 }

// timeLookLocked polls for the message of a sample, for a while.
//
//go:noinline
func (m *Mailboxes) timeLookLocked(word *uint64) {
	m.e.mu.assertHeld()
	f := &m.fetch
	f.due = m.exchange + fetchSampleEvery
	number, began := mailboxNumber(m.exchange), sys.Ticks()
	for range looksPerCheck {
		if uint32(atomic.LoadUint64(word)) == number {
			sys.AwaitLoads()
			f.look, f.found, f.on = sys.Ticks()-began, true, true
			return
		}
		sys.AwaitLoads()
		began = sys.Ticks()
	}
}

// begins is called at the beginning of an exchange, if f is on.
//
//go:noinline
func (f *lineFetch) begins() {
	if f.ended != 0 {
		f.vote(sys.Ticks() - f.ended)
		f.ended = 0
	}
}

// vote counts a sample: the rank took so many ticks from one exchange to the next. A line must take half as
// long again: where it takes about as long, a wrong guess costs more than a right one gains.
func (f *lineFetch) vote(turn int64) {
	if 2*f.look > 3*turn {
		f.votes = min(f.votes+1, fetchVotes)
	} else {
		f.votes = max(f.votes-1, -fetchVotes)
	}
}

// fetchNextLocked ends an exchange, if m.fetch is on.
//
//go:noinline
func (m *Mailboxes) fetchNextLocked(c *Collective) {
	m.e.mu.assertHeld()
	f := &m.fetch
	f.sent[m.exchange&1] = c.sentBytes(m)
	f.ended = 0
	if f.found {
		f.ended, f.found = sys.Ticks(), false
	}
	f.on = f.ended != 0 || f.pays()
	first, n := m.nextMessageLocked()
	if first == 0 {
		return
	}
	for at := 0; at < n; at += mailboxLine {
		prefetch(first + uintptr(at))
	}
}

// sentBytes returns the length in its mailbox of the message of this exchange; 0 if none was sent. Sends come
// after receives.
func (c *Collective) sentBytes(m *Mailboxes) int {
	last := len(c.exchange) - 1
	if last < 0 || c.exchange[last].Kind != coll.Send {
		return 0
	}
	return messageBytes(len(c.payload(m, &c.exchange[last])))
}

// nextMessageLocked returns the address and the length in its mailbox of this rank's message of the next
// exchange, if it is as long as that of two exchanges ago; 0 if its lines are not to be fetched.
func (m *Mailboxes) nextMessageLocked() (first uintptr, n int) {
	m.e.mu.assertHeld()
	n = m.fetch.sent[(m.exchange+1)&1]
	b := &m.peers[1-m.rank]
	if !m.fetch.pays() || n == 0 || n > fetchMost || b.peer.state != peerOpen {
		return 0, 0
	}
	return b.peer.ch.QP().PrefetchAddr(b.mine + uint64(m.slotEnd(m.exchange+1)-n)), n
}
