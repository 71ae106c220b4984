package match

import "math/bits"

// indexThreshold is how far a queue is walked before it gets an index of tags. Up to there walking costs no
// more than keeping the index; and most queues, long ones too, are asked for in their own order, so that
// nobody walks them. A power of two.
const indexThreshold = 16

// entry is where a receive or a message stands in a queue. The zero place stands in none.
type entry[E any] struct {
	owner      *E
	queue      *queue[E] // nil while it stands in none
	prev, next *entry[E] // in the queue
	tag        int32
	sequence   uint64

	prevTag, nextTag *entry[E] // in the chain of the queue's index, while it has one
}

// queue keeps places in the order in which they were pushed. One that has been walked far has an index, until
// it is empty, from tags to chains of places that stand in the same order, so that the first with a tag is
// found without walking past those with other tags.
type queue[E any] struct {
	first, last *entry[E]
	length      int
	anyTag      chain[E]   // those that accept AnyTag, while there is an index
	chains      []chain[E] // the others by tag: the index, a power of two; nil while there is none
	spare       []chain[E] // of an index that the queue had: all empty
}

// chain is a doubly linked list of places whose tags fall together.
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

// addToIndex puts a place that has been pushed into the index.
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

// popIfTag removes the first receive and gives it, if it names this tag and is in no index. It is remove
// for the first of a queue, by far the most common case, in a fifth less time.
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

// buildIndex makes chains, about two for every place that the queue holds now, and puts the places into them.
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

// findReceive finds the first place with this tag, or with AnyTag: of receives, the one for a message of this
// tag.
func (q *queue[E]) findReceive(tag int32) *entry[E] {
	if p := q.first; p != nil && (p.tag == tag || p.tag == AnyTag) {
		return p // most messages come in the order of their receives
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

// each yields the owners in order, and lets the one at hand be removed. It reports whether to go on.
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

// earliest of two receives, either of which may be nil.
func earliest[E any](a, b *entry[E]) *entry[E] {
	if a == nil || b != nil && b.sequence < a.sequence {
		return b
	}
	return a
}
