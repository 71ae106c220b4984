package engine

import (
	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/match"
)

// Choices has an owner outside the engine decide from whom the receives and probes of any source take their
// messages, so that it can try all sources. They are numbered in the order of the calls, from 0.
//
// A receive of any source is held back until its source is decided. Then it is one that names its source.
//
// Invariants, under the lock: a receive is in held, and not posted, while an earlier one in held may take a
// message that it would take too. So a message goes to the receive that MPI gives it to, whatever is decided.
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

// holds keeps a receive back if it waits for a decision, or for another that does. The lock is held.
func (c *Choices) holds(r *request) bool {
	p := &r.posted
	if !contextid.PointToPoint.Is(p.Context) {
		return false
	}
	r.observed = true // so that put tells of it
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

// waits reports whether one of the first n receives that are held may take a message that p would take too.
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

// accepts reports whether one of the first n receives that are held takes a message.
func (c *Choices) accepts(n int, m *match.Message[*unexpectedMessage]) bool {
	return c.waits(n, &match.Posted[*request]{Context: m.Context, Source: m.Source, Tag: m.Tag})
}

// release posts the receives that need not be held any more: no earlier one could take what they take, or the
// message that they take is there and is for no earlier one.
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
		i = -1 // others may have waited for it
	}
}

// remove takes a receive that is cancelled, or fails, out of those that are held; false if it is none.
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

// onPeerFailed fails the receives that wait for a peer, as those that are posted fail.
func (c *Choices) onPeerFailed(p *peer) {
	for _, r := range append([]*request(nil), c.held...) {
		s := r.posted.Source
		if s == int32(p.rank) || s == AnySource && c.e.failures.inContext(r.posted.Context, p.rank) {
			c.remove(r)
			c.e.Requests.complete(r, p.cause)
		}
	}
}

// sources are those of the messages that the i-th receive that is held can take.
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

// probe is what a probe of any source finds. The first time that there is a message its source is decided.
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

// Open returns the receives of any source that could take a message if that was decided.
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

// Decide decides from whom a receive that OpenChoices has returned takes its message.
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
