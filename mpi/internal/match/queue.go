package match

import "math/bits"

// indexThreshold is the number of entries after which a search of a queue builds an index of tags. Shorter
// searches cost no more than an index; and most queues, even long ones, are emptied in their own order, so
// their first entry matches. It is a power of two.
const indexThreshold = 16

// entry is the entry of a receive or a message in a queue. The zero entry is in none.
type entry[E any] struct {
	owner      *E
	queue      *queue[E] // nil if it is in none
	prev, next *entry[E] // in the queue
	tag        int32
	sequence   uint64

	prevTag, nextTag *entry[E] // in the chain of the queue's index, while it has one
}

// queue is a list of entries in the order in which they were pushed. After a long search it has an index,
// until it is empty, from tags to chains of entries in the same order, so that the first with a tag is found
// without passing others.
type queue[E any] struct {
	first, last *entry[E]
	length      int
	anyTag      chain[E]   // entries that accept AnyTag, if there is an index
	chains      []chain[E] // the others by hash of tag; their number is a power of two; nil without an index
	spare       []chain[E] // empty chains of an earlier index
}

// chain is a doubly linked list of entries whose tags have the same hash.
type chain[E any] struct {
	first, last *entry[E]
}

func (q *queue[E]) push(p *entry[E]) {
	last := q.last
	p.queue, p.prev, p.next, q.last = q, last, nil, p
	if last == nil {
		q.first = p
	} else {
		last.next = p
	}
	q.length++
	if q.chains != nil {
		q.addToIndex(p)
	}
}

// addToIndex adds an entry that was pushed to the index.
func (q *queue[E]) addToIndex(p *entry[E]) {
	if q.length > len(q.chains) {
		q.buildIndex()
	} else {
		q.chain(p.tag).push(p)
	}
}

func (q *queue[E]) remove(p *entry[E]) {
	if p.prev == nil {
		q.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	q.length--
	if q.chains != nil {
		q.chain(p.tag).remove(p)
		if q.length == 0 {
			q.spare, q.chains = q.chains, nil
		}
	}
	p.queue, p.prev, p.next = nil, nil, nil
}

// popIfTag removes the first receive and returns it, if it has this tag and there is no index. It is a fifth
// faster than remove, for by far the most common case.
func (q *queue[E]) popIfTag(tag int32) *entry[E] {
	p := q.first
	if p == nil || p.tag != tag || q.chains != nil {
		return nil
	}
	next := p.next
	q.first, p.queue, p.next = next, nil, nil
	if next == nil {
		q.last = nil
	} else {
		next.prev = nil
	}
	q.length--
	return p
}

// buildIndex makes about two chains for every entry, and adds the entries to them.
func (q *queue[E]) buildIndex() {
	q.anyTag = chain[E]{}
	if size := max(2*indexThreshold, 1<<bits.Len(uint(2*q.length-1))); len(q.spare) >= size {
		q.chains, q.spare = q.spare, nil
	} else {
		q.chains = make([]chain[E], size)
	}
	for p := q.first; p != nil; p = p.next {
		q.chain(p.tag).push(p)
	}
}

func (q *queue[E]) chain(tag int32) *chain[E] {
	if tag == AnyTag {
		return &q.anyTag
	}
	// Tags in use are often consecutive, or multiples of something: the upper bits of this product spread
	// them all.
	return &q.chains[uint32(tag)*0x9E3779B1>>(33-bits.Len(uint(len(q.chains))))]
}

// findMessage finds the first message for a receive of this tag: the one that carries it, or the first of all
// for AnyTag. No message carries AnyTag.
func (q *queue[E]) findMessage(tag int32) *entry[E] {
	if tag == AnyTag {
		return q.first
	}
	return q.findReceive(tag)
}

// findReceive finds the first entry with this tag, or with AnyTag: among receives, the one for a message of
// this tag.
func (q *queue[E]) findReceive(tag int32) *entry[E] {
	if p := q.first; p != nil && (p.tag == tag || p.tag == AnyTag) {
		return p // most messages arrive in the order of their receives
	}
	walked := 0
	for p := q.first; p != nil && q.chains == nil; p = p.next {
		if p.tag == tag || p.tag == AnyTag {
			return p
		}
		if walked++; walked > indexThreshold {
			q.buildIndex()
		}
	}
	if q.chains == nil {
		return nil
	}
	return earliest(q.chain(tag).find(tag), q.anyTag.first)
}

// each yields the owners in order; the current one may be removed. It reports whether to go on.
func (q *queue[E]) each(yield func(*E) bool) bool {
	for p := q.first; p != nil; {
		next := p.next
		if !yield(p.owner) {
			return false
		}
		p = next
	}
	return true
}

func (c *chain[E]) push(p *entry[E]) {
	p.prevTag, p.nextTag = c.last, nil
	if c.last == nil {
		c.first = p
	} else {
		c.last.nextTag = p
	}
	c.last = p
}

func (c *chain[E]) remove(p *entry[E]) {
	if p.prevTag == nil {
		c.first = p.nextTag
	} else {
		p.prevTag.nextTag = p.nextTag
	}
	if p.nextTag == nil {
		c.last = p.prevTag
	} else {
		p.nextTag.prevTag = p.prevTag
	}
	p.prevTag, p.nextTag = nil, nil
}

func (c *chain[E]) find(tag int32) *entry[E] {
	for p := c.first; p != nil; p = p.nextTag {
		if p.tag == tag {
			return p
		}
	}
	return nil
}

// earliest returns the earlier of two receives, either of which may be nil.
func earliest[E any](a, b *entry[E]) *entry[E] {
	if a == nil || b != nil && b.sequence < a.sequence {
		return b
	}
	return a
}
