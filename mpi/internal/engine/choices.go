package engine

import (
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/match"
)

// Choices lets a systematic tester (package mpitest) decide which source each receive or probe of any source
// matches, so that it can try all of them. They are numbered in the order of the calls, from 0.
//
// A receive of any source is deferred until its source is decided. Then it is a receive from that source.
//
// Invariants, under the lock: a receive stays in held, unposted, while an earlier one in held could match one
// of the same messages. So each message goes to the receive that MPI requires, whatever is decided.
type Choices struct {
	e       *Engine
	decided func(number int) (source int, ok bool) // called under the lock
	number  int                                    // of the next choice
	held    []*request
}

// Choice is a receive of any source that waits for a decision.
type Choice struct {
	Number  int
	Sources []int // of the messages that it can take now
}

// holdIfNeeded puts a receive into held if its source is undecided, or if it must wait for another one in
// held. It reports whether it did.
func (c *Choices) holdIfNeeded(r *request) bool {
	p := &r.posted
	if !contextid.PointToPoint.Is(p.Context) {
		return false
	}
	r.observed = true // so that put reports it to the hook
	if p.Source == AnySource {
		r.choice = c.number + 1
		c.number++
		c.e.hook.Tell(Event{Kind: EventChoice, Context: p.Context, Peer: AnySource, Tag: int(p.Tag),
			Choice: r.choice})
		if source, ok := c.decided(r.choice - 1); ok {
			p.Source = int32(source)
		}
	}
	if p.Source != AnySource && !c.waits(len(c.held), p) {
		return false
	}
	c.held = append(c.held, r)
	c.release()
	return true
}

// waits reports whether one of the first n receives in held could match a message that p could match too.
func (c *Choices) waits(n int, p *match.Posted[*request]) bool {
	for _, h := range c.held[:n] {
		o := &h.posted
		if o.Context == p.Context && (o.Tag == p.Tag || o.Tag == AnyTag || p.Tag == AnyTag) &&
			(o.Source == p.Source || o.Source == AnySource || p.Source == AnySource) {
			return true
		}
	}
	return false
}

// accepts reports whether one of the first n receives in held could match m.
func (c *Choices) accepts(n int, m *match.Message[*unexpectedMessage]) bool {
	return c.waits(n, &match.Posted[*request]{Context: m.Context, Source: m.Source, Tag: m.Tag})
}

// release posts the receives that need not wait any longer: no earlier one could match the same messages, or
// their message has arrived and no earlier one could match it.
func (c *Choices) release() {
	for i := 0; i < len(c.held); i++ {
		r := c.held[i]
		p := &r.posted
		if p.Source == AnySource {
			continue
		}
		if c.waits(i, p) {
			m := c.e.matching.Probe(p.Context, p.Source, p.Tag)
			if m == nil || c.accepts(i, m) {
				continue
			}
		}
		c.held = append(c.held[:i], c.held[i+1:]...)
		c.e.Recvs.post(r)
		i = -1 // others may have waited for this one
	}
}

// remove removes a receive that is cancelled or fails from held; false if it is not there.
func (c *Choices) remove(r *request) bool {
	for i, h := range c.held {
		if h == r {
			c.held = append(c.held[:i], c.held[i+1:]...)
			c.release()
			return true
		}
	}
	return false
}

// onPeerFailed fails the receives in held that wait for a peer, as posted receives fail. A receive whose
// message has arrived leaves held, and succeeds, when no earlier one is before it any more.
func (c *Choices) onPeerFailed(p *peer) {
	for _, r := range append([]*request(nil), c.held...) {
		s := r.posted.Source
		if s == int32(p.rank) || s == AnySource && c.e.failures.inContext(r.posted.Context, p.rank) {
			if c.remove(r) {
				c.e.Requests.complete(r, p.cause)
			}
		}
	}
}

// sources returns the sources of the messages that the i-th receive in held can match.
func (c *Choices) sources(i int) (list []int) {
	p := &c.held[i].posted
	for source := range c.e.size {
		m := c.e.matching.Probe(p.Context, int32(source), p.Tag)
		if m != nil && !c.accepts(i, m) {
			list = append(list, source)
		}
	}
	return list
}

// probe returns the message that a probe of any source finds. Its source is decided when a message is there
// for the first time.
func (c *Choices) probe(context uint32, tag int) *match.Message[*unexpectedMessage] {
	source, ok := c.decided(c.number)
	if !ok {
		m := c.e.matching.Probe(context, AnySource, int32(tag))
		if m == nil {
			return nil
		}
		source = int(m.Source)
	}
	m := c.e.matching.Probe(context, int32(source), int32(tag))
	if m != nil {
		c.number++
		c.e.hook.Tell(Event{Kind: EventChoice, Context: context, Peer: source, Tag: tag, Choice: c.number})
	}
	return m
}

// Open returns the undecided receives for which messages have arrived.
func (c *Choices) Open() (list []Choice) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, r := range c.held {
		if r.posted.Source == AnySource {
			if from := c.sources(i); len(from) > 0 {
				list = append(list, Choice{r.choice - 1, from})
			}
		}
	}
	return list
}

// Decide sets the source of a receive that Open has returned.
func (c *Choices) Decide(number, source int) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range c.held {
		if r.choice == number+1 {
			r.posted.Source = int32(source)
			c.release()
			return
		}
	}
}

// Unmatched reports whether the receive of a choice has found no message.
func (c *Choices) Unmatched(number int) bool {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range e.Requests.underWay() {
		if r.choice == number+1 {
			return !r.taken
		}
	}
	return false
}
