package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// sharedCopies is what one channel receives in copies that both ends share.
type sharedCopies struct {
	claims *claims // the sender's, mapped; nil if it has told of none
	unmap  func() error
	told   bool
	turn   uint32
	broken bool // one end cannot reach the other's memory
	// A sender that itself fetches, as in an exchange, copies nothing, and to try costs a system call. So
	// after each turn in which it has copied nothing twice as many messages are read without a try.
	alone  int // turns in a row in which the sender has copied nothing
	skip   int // messages to read without a try
	remote [1]transport.Segment
}

// passBudget is how many bytes one pass copies: then others have their turn.
const passBudget = claimsPart

// BeginPass lets the receiver copy as much as one pass may.
func (f *Receiver) BeginPass() { f.budget, f.stopped = passBudget, false }

// Copied reports whether this pass has copied something that both ends share.
func (f *Receiver) Copied() bool { return f.budget < passBudget }

// MoreToCopy reports whether this pass has left something to copy: the next one is due without an event.
func (f *Receiver) MoreToCopy() bool { return f.stopped }

// OnClaims handles a CLAIMS of a channel.
func (f *Receiver) OnClaims(c *channel.Channel, d Claims) error {
	l := f.queue(c)
	if l.shared.told {
		return fmt.Errorf("%w: a second CLAIMS", transport.ErrProtocol)
	}
	l.shared.told = true
	m, maps := c.QP().(transport.Mapper)
	if !maps || !f.shares {
		return nil
	}
	mem, unmap, ok := m.MapRegion(d.Key)
	if !ok {
		return nil
	}
	if l.shared.claims = claimsIn(mem); l.shared.claims == nil {
		return errors.Join(fmt.Errorf("%w: a CLAIMS of %d bytes of memory", transport.ErrProtocol, len(mem)),
			unmap())
	}
	l.shared.unmap = unmap
	return nil
}

// drop forgets the sender's claims.
func (h *sharedCopies) drop() error {
	if h.claims == nil {
		return nil
	}
	h.claims = nil
	return h.unmap()
}

// settle gives sharing up where it does not work, so that it is not tried with every message.
func (h *sharedCopies) settle() error {
	if !h.broken {
		return nil
	}
	return h.drop()
}

// maxAlone bounds how long sharing is not tried: for 7 messages.
const maxAlone = 3

// shareable tells whether both ends may copy what is announced.
func (l *channelQueue) shareable(s *Source, n int) bool {
	h := &l.shared
	if h.claims == nil || n < claimsMin || uint64(n) != s.Length {
		return false
	}
	if h.skip > 0 {
		h.skip--
		return false
	}
	return true
}

// tried notes how much the sender has copied in a turn.
func (h *sharedCopies) tried(pages uint64) {
	if pages > 0 {
		h.alone = 0
		return
	}
	h.alone = min(h.alone+1, maxAlone)
	h.skip = 1<<h.alone - 1
}

// copyShared copies n bytes of a message, claimsPart at most, from position at on to their place in memory
// that the sender may write, together with the sender. If it returns false some of them are not
// there, and the sender copies nothing any more.
func (l *channelQueue) copyShared(c *channel.Channel, s *Source, at, n int, to transport.MR) bool {
	h := &l.shared
	h.turn++
	pages, mem := pagesOf(uint64(n)), to.Bytes()[at:][:n]
	get := func(from, to uint64) bool {
		b := mem[from*claimsPage : min(to*claimsPage, uint64(n))]
		h.remote[0] = transport.Segment{Key: s.Key, Offset: s.Offset + uint64(at) + from*claimsPage,
			Length: uint64(len(b))}
		err := c.QP().Get(b, &h.remote[0])
		h.broken = h.broken || err != nil && err != transport.ErrNotNow
		return err == nil
	}
	next, ok, sane := uint64(0), true, true
	for k := h.claims.begin(h.turn, s.ID, uint64(to.Key()), uint64(at), uint64(n)); k > 0; {
		ok = ok && get(next, next+k)
		next += k
		if k, sane = h.claims.claimFront(h.turn, next, pages, !ok); !sane {
			h.broken = true
			return false
		}
	}
	sent := pages - next
	h.tried(sent)
	if sent > 0 && !h.awaitCopied(sent) {
		// What it does yet changes nothing: it writes the same bytes, until the key is out of use.
		ok = ok && get(next, pages)
	}
	return ok
}

// copiedLooks is how often a receiver looks for the next pages of a sender, which copies them in some 20 µs
// unless it has lost its core: for a millisecond or more.
const (
	copiedLooks    = 1 << 20
	copiedLooksAll = 16 * copiedLooks // for all of them
)

// awaitCopied waits until the sender has copied its pages; false if it does not come to it, or cannot.
func (h *sharedCopies) awaitCopied(pages uint64) bool {
	before, looks := uint64(0), 0
	for range copiedLooksAll {
		copied, refused, never := h.claims.copiedIn(h.turn)
		switch {
		case refused || copied > pages:
			h.broken = h.broken || never || copied > pages
			return false
		case copied == pages:
			return true
		case copied > before:
			before, looks = copied, 0
		}
		if looks++; looks == copiedLooks {
			return false
		}
	}
	return false
}

// copyRest copies what is left of the message that is due, as far as this pass may; false if it may not all
// of it. Where the memory cannot be reached that way it is left to Reads.
func (f *Receiver) copyRest(c *channel.Channel, l *channelQueue, t *fetch) bool {
	p := &t.segments[0]
	for t.posted < t.want {
		n := min(t.want-t.posted, claimsPart)
		if f.budget < n {
			l.queueFull, f.stopped = true, true
			return false
		}
		if !l.copyShared(c, &t.source, t.posted, n, p.mr) {
			t.shared = false
			return true
		}
		f.budget -= n
		t.posted += n
		t.arrived += n
		p.posted += n
	}
	return true
}

// postEnd posts a Read of no bytes, whose completion is the end of a message that has been copied.
func (f *Receiver) postEnd(c *channel.Channel, l *channelQueue, t *fetch) (bool, error) {
	return f.postReadOf(c, l, t, transport.SGE{MR: t.segments[0].mr, Offset: t.want, Length: 0})
}
