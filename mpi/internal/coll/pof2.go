package coll

import "math/bits"

// pof2 is the subset of the ranks that takes part in a recursive halving or doubling: the largest power of
// two of them, numbered from 0. Each remaining rank forms a pair with a member, its representative, which
// combines for both. Numbers ascend with ranks, and the ranks of a pair are consecutive. So a range of
// numbers stands for a range of ranks, and combining ranges that double in length keeps the rank order.
type pof2 struct {
	rank, root int
	size       int  // a power of two
	pairs      int  // the ranks below 2*pairs are in pairs
	member     bool // this rank takes part, not its partner
	own        int  // the number of this rank

	// what has been combined so far: at first the input, which can be sent without a copy, then result
	value    Span
	result   Span
	received Span // what a partner sent
}

// noRoot is the root of operations that have none.
const noRoot = -1

func newPof2(rank, size, root int, input, result Span) pof2 {
	c := pof2{rank: rank, root: root, size: 1 << (bits.Len(uint(size)) - 1), value: input, result: result}
	c.pairs = size - c.size
	c.member = rank >= 2*c.pairs || c.representative(rank/2) == rank
	c.own = c.number(rank)
	return c
}

// representative returns the member of a pair: the higher rank, or the root, which then has the result
// without a further message.
func (c *pof2) representative(pair int) int {
	if c.root == 2*pair {
		return c.root
	}
	return 2*pair + 1
}

// number returns the number of a rank: a member's own, or its representative's.
func (c *pof2) number(rank int) int {
	if rank < 2*c.pairs {
		return rank / 2
	}
	return rank - c.pairs
}

// rankOf returns the rank of the member with a number.
func (c *pof2) rankOf(number int) int {
	if number < c.pairs {
		return c.representative(number)
	}
	return number + c.pairs
}

// preReduce sends the input of the other ranks to their representatives, which combine it with theirs.
func (c *pof2) preReduce(s *Schedule) {
	switch partner := c.rank ^ 1; {
	case !c.member:
		s.send(partner, c.value)
	case c.rank < 2*c.pairs:
		c.received = s.scratch(c.result.Len)
		s.recv(partner, c.received)
		c.combine(s, 0, c.result.Len, partner < c.rank)
	case c.size > 1:
		c.received = s.scratch(c.result.Len)
	default:
		s.copy(c.result, c.value)
	}
	s.round()
}

// postBcast sends the result to the ranks that are not members.
func (c *pof2) postBcast(s *Schedule) {
	switch partner := c.rank ^ 1; {
	case !c.member:
		s.recv(partner, c.result)
	case c.rank < 2*c.pairs:
		s.send(partner, c.result)
	}
	s.round()
}

// combine combines the received bytes in [from, to) into the result, which replaces the input as value.
func (c *pof2) combine(s *Schedule, from, to int, left bool) {
	s.copy(c.result.part(from, to), c.value.part(from, to))
	s.reduce(c.result.part(from, to), c.received.part(from, to), left)
	c.value = c.result
}

// double exchanges whole vectors with partners at doubling distance; all members get the result.
func (c *pof2) double(s *Schedule) {
	for distance := 1; distance < c.size; distance *= 2 {
		partner := c.rankOf(c.own ^ distance)
		s.recv(partner, c.received)
		s.send(partner, c.value)
		c.combine(s, 0, c.result.Len, partner < c.rank)
		s.round()
	}
}

// share returns the range of elements that a number is responsible for after partners up to the given
// distance have halved their ranges.
func share(number, distance, count int) (from, to int) {
	from, to = 0, count
	for d := 1; d < distance; d *= 2 {
		if middle := from + (to-from)/2; number&d == 0 {
			to = middle
		} else {
			from = middle
		}
	}
	return from, to
}

// halve reduces and scatters: at each doubling distance, two partners take one half each of the range that
// both are responsible for. Each number ends with its segment of the result.
func (c *pof2) halve(s *Schedule, count, elemSize int) {
	for distance := 1; distance < c.size; distance *= 2 {
		number := c.own ^ distance
		partner := c.rankOf(number)
		keepFrom, keepTo := share(c.own, 2*distance, count)
		giveFrom, giveTo := share(number, 2*distance, count)
		s.recv(partner, c.received.part(keepFrom*elemSize, keepTo*elemSize))
		s.send(partner, c.value.part(giveFrom*elemSize, giveTo*elemSize))
		c.combine(s, keepFrom*elemSize, keepTo*elemSize, partner < c.rank)
		s.round()
	}
}

// allgather reverses halve: partners exchange their segments until each has the whole.
func (c *pof2) allgather(s *Schedule, count, elemSize int) {
	for distance := c.size / 2; distance > 0; distance /= 2 {
		number := c.own ^ distance
		partner := c.rankOf(number)
		s.recv(partner, c.segment(number, 2*distance, count, elemSize))
		s.send(partner, c.segment(c.own, 2*distance, count, elemSize))
		s.round()
	}
}

// gather reverses halve towards the root: of two partners, the one on the root's side receives the other's
// segment.
func (c *pof2) gather(s *Schedule, count, elemSize int) {
	root := c.number(c.root)
	for distance := c.size / 2; distance > 0; distance /= 2 {
		number := c.own ^ distance
		partner := c.rankOf(number)
		if c.own&distance != root&distance {
			s.send(partner, c.segment(c.own, 2*distance, count, elemSize))
			s.round()
			return
		}
		s.recv(partner, c.segment(number, 2*distance, count, elemSize))
		s.round()
	}
}

func (c *pof2) segment(number, distance, count, elemSize int) Span {
	from, to := share(number, distance, count)
	return c.result.part(from*elemSize, to*elemSize)
}
