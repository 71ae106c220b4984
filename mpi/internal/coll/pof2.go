package coll

import "math/bits"

// pof2 is the power-of-two subset of the ranks that takes part in a recursive halving or doubling: the
// largest power of two of them, numbered from 0. Of the remaining ranks each forms a pair with a member, its
// representative, which combines for both. Numbers ascend with ranks, and pairs are neighbors: so a range of
// numbers stands for a range of ranks, and to combine ranges that double in length is to combine in rank
// order.
type pof2 struct {
	rank, root int
	size       int  // a power of two
	pairs      int  // the ranks below 2*pairs are in pairs
	member     bool // whether this rank takes part, and not its partner
	own        int  // the number of this rank

	// what has been combined so far: the input at first, which need not be copied to be sent, then result
	value    Span
	result   Span
	received Span // what a partner sent
}

// noRoot is for operations in which no rank has to be a member for its own sake.
const noRoot = -1

func newPof2(rank, size, root int, input, result Span) pof2 {
	c := pof2{rank: rank, root: root, size: 1 << (bits.Len(uint(size)) - 1), value: input, result: result}
	c.pairs = size - c.size
	c.member = rank >= 2*c.pairs || c.representative(rank/2) == rank
	c.own = c.number(rank)
	return c
}

// representative is the member of a pair: the higher rank, or the root, which then needs no message of its
// own to get the result.
func (c *pof2) representative(pair int) int {
	if c.root == 2*pair {
		return c.root
	}
	return 2*pair + 1
}

// number is the number of a member, which its partner shares.
func (c *pof2) number(rank int) int {
	if rank < 2*c.pairs {
		return rank / 2
	}
	return rank - c.pairs
}

// rankOf is the rank of the member with this number.
func (c *pof2) rankOf(number int) int {
	if number < c.pairs {
		return c.representative(number)
	}
	return number + c.pairs
}

// preReduce brings the input of those that are not members to their representatives.
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

// postBcast brings the result to those that are not members.
func (c *pof2) postBcast(s *Schedule) {
	switch partner := c.rank ^ 1; {
	case !c.member:
		s.recv(partner, c.result)
	case c.rank < 2*c.pairs:
		s.send(partner, c.result)
	}
	s.round()
}

// combine takes up the bytes from one place up to another of what was received. It ends the use of the input.
func (c *pof2) combine(s *Schedule, from, to int, left bool) {
	s.copy(c.result.part(from, to), c.value.part(from, to))
	s.reduce(c.result.part(from, to), c.received.part(from, to), left)
	c.value = c.result
}

// double exchanges the whole with partners at doubling distance; all get the result.
func (c *pof2) double(s *Schedule) {
	for distance := 1; distance < c.size; distance *= 2 {
		partner := c.rankOf(c.own ^ distance)
		s.recv(partner, c.received)
		s.send(partner, c.value)
		c.combine(s, 0, c.result.Len, partner < c.rank)
		s.round()
	}
}

// share is the range of elements for which a number is responsible when partners up to the given distance
// have halved their ranges.
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

// halve has partners at doubling distance take over one half each of the range that both are responsible for.
// Each number ends with its segment of the result.
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

// allgather is halve backwards: partners exchange their segments until all have all.
func (c *pof2) allgather(s *Schedule, count, elemSize int) {
	for distance := c.size / 2; distance > 0; distance /= 2 {
		number := c.own ^ distance
		partner := c.rankOf(number)
		s.recv(partner, c.segment(number, 2*distance, count, elemSize))
		s.send(partner, c.segment(c.own, 2*distance, count, elemSize))
		s.round()
	}
}

// gather is halve backwards towards the root: of two partners the one on its side gets the other's segment.
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
