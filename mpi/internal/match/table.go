// Package match decides which receive takes which message, by MPI's rules: a receive matches a message of its
// context whose source and tag are the ones it names, or any where it names AnySource or AnyTag; among the
// receives that match a message the one posted first takes it, and among the messages that match a receive
// the one that arrived first is taken.
//
// The package does no I/O, takes no lock and starts no goroutine: the owner of a [Table] calls it from one
// goroutine at a time. Receives and messages are linked into the table themselves, so nothing is allocated
// for them; their owner keeps them alive and does not move them while they wait, and can reuse them
// afterwards.
package match

import "iter"

const (
	// AnySource as the source of a receive or a probe accepts a message from every source of the context.
	AnySource = -1
	// AnyTag as the tag of a receive or a probe accepts every tag. Tags of messages are never negative.
	AnyTag = -1
)

// Posted is a receive that its owner fills in and posts. Context, Source and Tag must not change while it is
// in the table.
type Posted[P any] struct {
	Context uint32
	Source  int32 // a rank of the context, or AnySource
	Tag     int32 // 0 or more, or AnyTag
	Value   P     // the owner's, not used here

	entry entry[Posted[P]]
}

// Message is a message that arrived before its receive was posted. Context, Source and Tag must not change
// while it is in the table.
type Message[M any] struct {
	Context uint32
	Source  int32 // a rank of the context
	Tag     int32 // 0 or more
	Value   M     // the owner's, not used here

	// Receives with its source and receives from AnySource look for it, so it is in two queues.
	bySource, byContext entry[Message[M]]
}

// Table holds the posted receives and the unexpected messages of a rank. The zero Table is empty and ready.
//
// The cost of its methods does not depend on the number of sources and contexts, and hardly on the length of
// the queues. Its memory grows with the number of sources in use, not with the size of the job.
type Table[P, M any] struct {
	bins      bins[P, M]
	sequence  uint64 // of the receive posted last: orders receives in different bins
	wildcards int    // posted receives from AnySource; while there are none Arrive searches one bin only

	posted, unexpected int
}

// Post removes the earliest unexpected message that the receive matches from the table and returns it. If
// there is none it adds p to the table, where p stays until Arrive or RemovePosted removes it, and returns
// nil.
func (t *Table[P, M]) Post(p *Posted[P]) *Message[M] {
	if p.entry.queue != nil {
		panic("match: Post of a receive that is in the table")
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

// Arrive removes the earliest posted receive that matches an arriving message from the table and returns it.
// It returns nil if there is none; the caller then passes the message to AddUnexpected.
func (t *Table[P, M]) Arrive(context uint32, source, tag int32) *Posted[P] {
	// Most messages come from the source of the last one, in the order of their receives.
	if b := t.bins.recent(key(context, source)); t.wildcards == 0 && b != nil {
		if p := b.posted.popIfTag(tag); p != nil {
			t.posted--
			return p.owner
		}
	}
	return t.search(context, source, tag)
}

// search is the slow path of Arrive.
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

// AddUnexpected adds a message that no posted receive matched to the table, behind those that arrived before.
// It stays until Post or RemoveUnexpected removes it.
func (t *Table[P, M]) AddUnexpected(m *Message[M]) {
	if m.bySource.queue != nil {
		panic("match: AddUnexpected of a message that is in the table")
	}
	m.bySource.owner, m.bySource.tag = m, m.Tag
	m.byContext.owner, m.byContext.tag = m, m.Tag
	t.bins.obtain(m.Context, m.Source).unexpected.push(&m.bySource)
	t.bins.obtain(m.Context, AnySource).unexpected.push(&m.byContext)
	t.unexpected++
}

// Probe returns the message that a receive with these arguments would match, or nil. The message stays in the
// table; a matched probe then calls RemoveUnexpected.
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

// RemoveUnexpected removes a message that Probe or Unexpected returned from the table. It reports false if
// the message is no longer there.
func (t *Table[P, M]) RemoveUnexpected(m *Message[M]) bool {
	if m.bySource.queue == nil {
		return false
	}
	m.bySource.queue.remove(&m.bySource)
	m.byContext.queue.remove(&m.byContext)
	t.unexpected--
	return true
}

// RemovePosted removes a receive from the table, to cancel it. It reports false if the receive is no longer
// there, because it has matched.
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

// Posted yields the posted receives, in the order of posting for each context and source. Its caller fails
// those that cannot match any more, because their source has failed, or their context was revoked or freed.
// The loop may remove the current receive, and must not add anything.
func (t *Table[P, M]) Posted() iter.Seq[*Posted[P]] {
	return func(yield func(*Posted[P]) bool) {
		for _, s := range t.bins.slots {
			if s.bin != nil && !s.bin.posted.each(yield) {
				return
			}
		}
	}
}

// Unexpected yields the unexpected messages, in the order of arrival for each context and source. The loop
// may remove the current message, and must not add anything.
func (t *Table[P, M]) Unexpected() iter.Seq[*Message[M]] {
	return func(yield func(*Message[M]) bool) {
		for _, s := range t.bins.slots {
			// Every message is in two bins, but in only one with a source.
			if s.bin != nil && s.source() != AnySource && !s.bin.unexpected.each(yield) {
				return
			}
		}
	}
}

// Release frees the memory of a freed context. Receives and messages that are still in it stay.
func (t *Table[P, M]) Release(context uint32) {
	t.bins.release(context)
}
