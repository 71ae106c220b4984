package coll

import "math/bits"

// core is the largest power of two of ranks that take part in a recursive halving or doubling, numbered from 0. If there
// are more ranks, the first of them form pairs, of which one combines for both. Numbers ascend with ranks, and pairs are
// neighbours: so a range of numbers stands for a range of ranks, and to combine ranges that double in length is to
// combine in the order of ranks.
type core struct {
	rank, root int
	size       int  // a power of two
	pairs      int  // the ranks below 2*pairs are in pairs
	member     bool // whether this rank takes part, and not its partner
}

// noRoot is for operations in which no rank has to be in the core for its own sake.
const noRoot = -1

func newCore(rank, size, root int) core {
	c := core{rank: rank, root: root, size: 1 << (bits.Len(uint(size)) - 1)}
	c.pairs = size - c.size
	c.member = rank >= 2*c.pairs || c.speaker(rank/2) == rank
	return c
}

// speaker is the rank of a pair that is in the core: the higher one, or the root, which so needs no message of its own
// to get the result.
func (c core) speaker(pair int) int {
	if c.root == 2*pair {
		return c.root
	}
	return 2*pair + 1
}

// number is the number of a member.
func (c core) number(rank int) int {
	if rank < 2*c.pairs {
		return rank / 2
	}
	return rank - c.pairs
}

// rankOf is the rank of the member with this number.
func (c core) rankOf(number int) int {
	if number < c.pairs {
		return c.speaker(number)
	}
	return number + c.pairs
}

// fold brings the input of those that are not in the core to their partners, and returns what a member works with.
func (c core) fold(s *Schedule, input, result Span) work {
	w := work{core: c, number: c.number(c.rank), value: input, result: result}
	if c.rank < 2*c.pairs {
		partner := c.rank ^ 1
		if !c.member {
			s.send(partner, input)
			s.round()
			return w
		}
		w.received = s.scratch(result.Len)
		s.recv(partner, w.received)
		w.combine(s, 0, result.Len, partner < c.rank)
		s.round()
	} else if c.size == 1 {
		s.copy(result, input)
		s.round()
	} else {
		w.received = s.scratch(result.Len)
	}
	return w
}

// unfold brings the result to those that are not in the core.
func (c core) unfold(s *Schedule, result Span) {
	if c.rank >= 2*c.pairs {
		return
	}
	if partner := c.rank ^ 1; c.member {
		s.send(partner, result)
	} else {
		s.recv(partner, result)
	}
	s.round()
}

// work is what a member of the core combines.
type work struct {
	core
	number   int
	value    Span // what has been combined so far: the input at first, which need not be copied to be sent, then result
	result   Span
	received Span // what a partner sent
}

// combine takes up the bytes from one place up to another of what was received. It ends the use of the input.
func (w *work) combine(s *Schedule, from, to int, left bool) {
	s.copy(w.result.part(from, to), w.value.part(from, to))
	s.reduce(w.result.part(from, to), w.received.part(from, to), left)
	w.value = w.result
}

// double exchanges the whole with partners at doubling distance; all get the result.
func (w *work) double(s *Schedule) {
	for distance := 1; distance < w.size; distance *= 2 {
		partner := w.rankOf(w.number ^ distance)
		s.recv(partner, w.received)
		s.send(partner, w.value)
		w.combine(s, 0, w.result.Len, partner < w.rank)
		s.round()
	}
}

// share is the range of elements for which a number is responsible when partners up to the given distance have halved
// their ranges.
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

// halve has partners at doubling distance take over one half each of the range that both are responsible for. Each
// number ends with its segment of the result.
func (w *work) halve(s *Schedule, count, elemSize int) {
	for distance := 1; distance < w.size; distance *= 2 {
		number := w.number ^ distance
		partner := w.rankOf(number)
		keepFrom, keepTo := share(w.number, 2*distance, count)
		giveFrom, giveTo := share(number, 2*distance, count)
		s.recv(partner, w.received.part(keepFrom*elemSize, keepTo*elemSize))
		s.send(partner, w.value.part(giveFrom*elemSize, giveTo*elemSize))
		w.combine(s, keepFrom*elemSize, keepTo*elemSize, partner < w.rank)
		s.round()
	}
}

// spread is halve backwards: partners exchange their segments until all have all.
func (w *work) spread(s *Schedule, count, elemSize int) {
	for distance := w.size / 2; distance > 0; distance /= 2 {
		number := w.number ^ distance
		partner := w.rankOf(number)
		s.recv(partner, w.segment(number, 2*distance, count, elemSize))
		s.send(partner, w.segment(w.number, 2*distance, count, elemSize))
		s.round()
	}
}

// collect is halve backwards towards one number: of two partners the one on its side gets the other's segment.
func (w *work) collect(s *Schedule, count, elemSize, root int) {
	for distance := w.size / 2; distance > 0; distance /= 2 {
		number := w.number ^ distance
		partner := w.rankOf(number)
		if w.number&distance != root&distance {
			s.send(partner, w.segment(w.number, 2*distance, count, elemSize))
			s.round()
			return
		}
		s.recv(partner, w.segment(number, 2*distance, count, elemSize))
		s.round()
	}
}

func (w *work) segment(number, distance, count, elemSize int) Span {
	from, to := share(number, distance, count)
	return w.result.part(from*elemSize, to*elemSize)
}
