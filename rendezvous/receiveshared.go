package rendezvous

import (
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/sharedcopy"
	"github.com/weft-mpi/weft/transport"
)

// sharedCopies is the receiving side of one channel's cooperative copies.
type sharedCopies struct {
	sharedcopy.Leader
	unmap  func() error
	known  bool // CLAIMS was received
	remote [1]transport.Segment
}

// passBudget is how many bytes one pass copies, so that other channels have their turn.
const passBudget = sharedcopy.MaxPart

// BeginPass begins a pass, one call of the engine's progress loop: it resets the number of bytes that the
// receiver may copy in it.
func (r *Receiver) BeginPass() { r.budget, r.stopped = passBudget, false }

// Copied reports whether this pass has made a cooperative copy.
func (r *Receiver) Copied() bool { return r.budget < passBudget }

// MoreToCopy reports whether this pass has left something to copy: the next one is due without an event.
func (r *Receiver) MoreToCopy() bool { return r.stopped }

// OnClaims handles a CLAIMS of a channel.
func (r *Receiver) OnClaims(c *channel.Channel, d Claims) error {
	l := r.queue(c)
	if l.shared.known {
		return fmt.Errorf("%w: a second CLAIMS", transport.ErrProtocol)
	}
	l.shared.known = true
	if d.FINs != 0 {
		if r.finSource == nil {
			mr, err := r.pd.Alloc(wordSize, transport.LocalWrite)
			if err != nil {
				return fmt.Errorf("memory for FINs: %w", err)
			}
			r.finSource = mr
		}
		l.ends = finWriterOf(d.FINs, r.finSource)
	}
	m, maps := c.QP().(transport.Mapper)
	if !maps || !r.shares {
		return nil
	}
	mem, unmap, ok := m.MapRegion(d.Key)
	if !ok {
		return nil
	}
	if l.shared.Claims = sharedcopy.In(mem); l.shared.Claims == nil {
		return errors.Join(fmt.Errorf("%w: a CLAIMS of %d bytes of memory", transport.ErrProtocol, len(mem)),
			unmap())
	}
	l.shared.unmap = unmap
	return nil
}

// drop unmaps the sender's claims.
func (h *sharedCopies) drop() error {
	if h.Claims == nil {
		return nil
	}
	h.Claims = nil
	return h.unmap()
}

// settle disables cooperative copies if they do not work, so that they are not tried with every message.
func (h *sharedCopies) settle() error {
	if !h.Broken {
		return nil
	}
	return h.drop()
}

// shareable reports whether both ends may copy an announced message.
func (l *channelQueue) shareable(s *Source, n int) bool {
	return uint64(n) == s.Length && l.shared.Worthwhile(s.Length)
}

// copyShared copies n bytes of a message, at most sharedcopy.MaxPart, from position at on, together with the
// sender, into memory that the sender may write. If it returns false some bytes are missing, and the sender
// copies nothing any more. A late copy of the sender does no harm: it writes the same bytes.
func (l *channelQueue) copyShared(c *channel.Channel, s *Source, at, n int, to transport.MR) bool {
	h := &l.shared
	mem := to.Bytes()[at:][:n]
	part := sharedcopy.Part{ID: s.ID, Key: uint64(to.Key()), At: uint64(at), Length: uint64(n)}
	return h.Copy(&part, func(from, to uint64) bool {
		h.remote[0] = transport.Segment{Key: s.Key, Offset: s.Offset + uint64(at) + from, Length: to - from}
		err := c.QP().Get(mem[from:to], &h.remote[0])
		h.Broken = h.Broken || err != nil && err != transport.ErrNotNow
		return err == nil
	}, func() bool { return false })
}

// byBothEnds is the transfer method in which both ends copy. It falls back to Reads if the memory cannot be
// copied.
type byBothEnds struct{ byReads }

func (byBothEnds) ask(r *Receiver, l *channelQueue, t *fetch) (bool, error) {
	if l.shared.Claims != nil && !r.copyRest(l, t) {
		return false, nil
	}
	if err := l.shared.settle(); err != nil {
		return false, err
	}
	if t.asked < t.want {
		return byReads{}.ask(r, l, t)
	}
	// The completion of a Read without bytes ends a message that has been copied.
	return l.postRead(t, transport.SGE{MR: t.into.list[0].mr, Offset: t.want, Length: 0})
}

// copyRest copies the rest of the message, as far as this pass may; false if it may not copy all of it.
func (r *Receiver) copyRest(l *channelQueue, t *fetch) bool {
	p := &t.into.list[0]
	for t.asked < t.want {
		n := min(t.want-t.asked, sharedcopy.MaxPart)
		if r.budget < n {
			l.queueFull, r.stopped = true, true
			return false
		}
		if !l.copyShared(l.c, &t.source, t.asked, n, p.mr) {
			t.method = byReads{}
			return true
		}
		r.budget -= n
		t.asked += n
		t.arrived += n
		p.asked += n
	}
	return true
}
