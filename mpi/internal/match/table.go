// Package match decides which receive takes which message, by MPI's rules: a receive matches a message of its
// context whose source and tag are the ones it names, or any where it names AnySource or AnyTag; among the
// receives that match a message the one posted first takes it, and among the messages that match a receive
// the one that arrived first is taken.
//
// The package does no I/O, holds no lock and starts nothing: whoever owns a [Table] calls it from one
// goroutine at a time. Receives and messages are linked into the table where they stand, so that nothing is
// allocated for them; their owner keeps them alive and unmoved while they wait, and uses them again
// afterwards.
package match

import "iter"

const (
	// AnySource as the source of a receive or a probe accepts a message from every source of the context.
	AnySource = -1
	// AnyTag as the tag of a receive or a probe accepts every tag. Tags of messages are never negative.
	AnyTag = -1
)

// Posted is a receive that its owner fills in and posts. Context, Source and Tag stay as they are while it
// waits.
type Posted[P any] struct {
	Context uint32
	Source  int32 // a rank of the context, or AnySource
	Tag     int32 // 0 or more, or AnyTag
	Value   P     // the owner's, not looked at

	entry entry[Posted[P]]
}

// Message is one that arrived before a receive for it was posted. Context, Source and Tag stay as they are
// while it is queued.
type Message[M any] struct {
	Context uint32
	Source  int32 // a rank of the context
	Tag     int32 // 0 or more
	Value   M     // the owner's, not looked at

	// A message is found by receives that name its source and by receives that do not, so it waits in two
	// queues.
	bySource, byContext entry[Message[M]]
}

// Table holds the posted receives and the unexpected messages of a rank. The zero Table is empty and ready.
//
// Posting, arriving, filing and taking cost the same however many sources and contexts there are, and hardly
// more when a queue is long. The memory grows with the sources that have been in use, never with the size of
// the job.
type Table[P, M any] struct {
	bins      bins[P, M]
	sequence  uint64 // of the receive posted last: tells which of two receives in different bins came first
	wildcards int    // posted receives from AnySource; while there are none Arrive looks into one bin only

	posted, unexpected int
}

// Post takes the earliest unexpected message that the receive matches out of the table and returns it.
// Without one it returns nil and p waits in the table until Arrive or Withdraw takes it out; it must not be
// posted again before that.
func (t *Table[P, M]) Post(p *Posted[P]) *Message[M] {
	if p.entry.queue != nil {
		panic("match: a receive was posted that is waiting already")
	}
	b := t.bins.recent(key(p.Context, p.Source))
	if b == nil {
		b = t.bins.obtain(p.Context, p.Source)
	}
	if b.unexpected.first != nil {
		if found := b.unexpected.findMessage(p.Tag); found != nil {
			t.RemoveUnexpected(found.owner)
			return found.owner
		}
	}
	t.sequence++
	p.entry.owner, p.entry.tag, p.entry.sequence = p, p.Tag, t.sequence
	b.posted.push(&p.entry)
	t.posted++
	if p.Source == AnySource {
		t.wildcards++
	}
	return nil
}

// Arrive takes the earliest posted receive that matches a message which has just arrived out of the table and
// returns it, or nil, upon which the caller files the message.
func (t *Table[P, M]) Arrive(context uint32, source, tag int32) *Posted[P] {
	// Most messages come from where the last one came from, in the order of their receives.
	if b := t.bins.recent(key(context, source)); t.wildcards == 0 && b != nil {
		if p := b.posted.popIfTag(tag); p != nil {
			t.posted--
			return p.owner
		}
	}
	return t.search(context, source, tag)
}

// search is Arrive for a message whose receive is not where most are.
func (t *Table[P, M]) search(context uint32, source, tag int32) *Posted[P] {
	var found *entry[Posted[P]]
	if b := t.bins.find(context, source); b != nil {
		found = b.posted.findReceive(tag)
	}
	if t.wildcards > 0 {
		if b := t.bins.find(context, AnySource); b != nil {
			found = earliest(found, b.posted.findReceive(tag))
		}
	}
	if found == nil {
		return nil
	}
	t.RemovePosted(found.owner)
	return found.owner
}

// AddUnexpected keeps a message that no posted receive matched, after those that arrived before. It waits
// until Post or Take takes it out; it must not be filed again before that.
func (t *Table[P, M]) AddUnexpected(m *Message[M]) {
	if m.bySource.queue != nil {
		panic("match: a message was filed that is waiting already")
	}
	m.bySource.owner, m.bySource.tag = m, m.Tag
	m.byContext.owner, m.byContext.tag = m, m.Tag
	t.bins.obtain(m.Context, m.Source).unexpected.push(&m.bySource)
	t.bins.obtain(m.Context, AnySource).unexpected.push(&m.byContext)
	t.unexpected++
}

// Probe returns the message that a receive with these particulars would take, and leaves it where it is; nil
// if there is none. Take takes it out, for a matched probe.
func (t *Table[P, M]) Probe(context uint32, source, tag int32) *Message[M] {
	b := t.bins.find(context, source)
	if b == nil {
		return nil
	}
	if found := b.unexpected.findMessage(tag); found != nil {
		return found.owner
	}
	return nil
}

// RemoveUnexpected takes a message that Probe or Unexpected showed out of the table. It reports false, and
// does nothing, if the message is not waiting any more.
func (t *Table[P, M]) RemoveUnexpected(m *Message[M]) bool {
	if m.bySource.queue == nil {
		return false
	}
	m.bySource.queue.remove(&m.bySource)
	m.byContext.queue.remove(&m.byContext)
	t.unexpected--
	return true
}

// RemovePosted takes a receive out of the table, to cancel it. It reports false, and does nothing, if the
// receive is not waiting any more: it has matched.
func (t *Table[P, M]) RemovePosted(p *Posted[P]) bool {
	if p.entry.queue == nil {
		return false
	}
	p.entry.queue.remove(&p.entry)
	t.posted--
	if p.Source == AnySource {
		t.wildcards--
	}
	return true
}

// Lengths counts the receives and the messages in the table.
func (t *Table[P, M]) Lengths() (posted, unexpected int) {
	return t.posted, t.unexpected
}

// Posted goes through the receives that wait, so that those which cannot match any more can be failed: those
// that name a dead source, or those of a context that was revoked or freed. Receives of one context and
// source come in the order of posting. The loop may withdraw the receive at hand, and must not post or file
// anything.
func (t *Table[P, M]) Posted() iter.Seq[*Posted[P]] {
	return func(yield func(*Posted[P]) bool) {
		for _, s := range t.bins.slots {
			if s.bin != nil && !s.bin.posted.each(yield) {
				return
			}
		}
	}
}

// Unexpected goes through the messages that wait. Messages of one context and source come in the order of
// arrival. The loop may take the message at hand, and must not post or file anything.
func (t *Table[P, M]) Unexpected() iter.Seq[*Message[M]] {
	return func(yield func(*Message[M]) bool) {
		for _, s := range t.bins.slots {
			// Every message is in two bins; the one of its source is where it is counted once.
			if s.bin != nil && s.source() != AnySource && !s.bin.unexpected.each(yield) {
				return
			}
		}
	}
}

// Release gives back what the table keeps for a context that has been freed. What still waits in it stays.
func (t *Table[P, M]) Release(context uint32) {
	t.bins.release(context)
}
