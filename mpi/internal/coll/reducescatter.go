package coll

// reduceScatterAlgorithms are the algorithms of ReduceScatter, which combines Input at all ranks, in rank
// order unless the operator is commutative, and stores each rank's block of the result, as described by Recv,
// in its Output. Blocks are consecutive. Input may begin where Output does. ReduceScatterBlock has blocks of
// the call's count, and no Recv.
var reduceScatterAlgorithms = []algorithm{
	{"recursive-doubling", nil, func(s *Schedule, c *Call) {
		reduceScatterDoubling(s, c.Rank, c.Size, c.reduced())
	}},
	{"recursive-halving", commutative, func(s *Schedule, c *Call) {
		reduceScatterHalving(s, c.Rank, c.Size, c.reduced())
	}},
	{"pairwise", nil, func(s *Schedule, c *Call) {
		reduceScatterPairwise(s, c.Rank, c.Size, c.reduced())
	}},
}

// reduced returns the blocks of the result.
func (c *Call) reduced() Blocks {
	if c.Recv == nil {
		return even(c.bytes())
	}
	return *c.Recv
}

// blockOfResult returns the span of this rank's block of the result, and the span in which to combine it:
// scratch memory if the input is in Output.
func (s *Schedule) blockOfResult(c *Call, n int) (output, result Span) {
	output = Span{Output, 0, n}
	if c.InPlace {
		return output, s.scratch(n)
	}
	return output, output
}

// reduceScatterDoubling combines the whole vector at every rank.
func reduceScatterDoubling(s *Schedule, rank, size int, blocks Blocks) {
	total := blocks.before(size)
	result := s.scratch(total)
	double(s, rank, size, Span{Input, 0, total}, result)
	at := blocks.before(rank)
	s.copy(Span{Output, 0, blocks.bytes(rank)}, result.part(at, at+blocks.bytes(rank)))
	s.round()
}

// reduceScatterHalving has partners at halving distance take over the blocks of their half of the ranks. It
// combines ranks that are not consecutive, so the operator must be commutative.
func reduceScatterHalving(s *Schedule, rank, size int, blocks Blocks) {
	total := blocks.before(size)
	result := s.scratch(total)
	own := result.part(blocks.before(rank), blocks.before(rank+1))
	c := newPof2(rank, size, noRoot, Span{Input, 0, total}, result)
	c.preReduce(s)
	// before returns the length of the blocks of the ranks below a number's.
	before := func(number int) int {
		if number < c.pairs {
			return blocks.before(2 * number)
		}
		return blocks.before(number + c.pairs)
	}
	if c.member {
		for distance := c.size / 2; distance > 0; distance /= 2 {
			s.round()
			number := c.own ^ distance
			partner := c.rankOf(number)
			keep, give := c.own&^(distance-1), number&^(distance-1)
			from, to := before(keep), before(keep+distance)
			s.recv(partner, c.received.part(from, to))
			s.send(partner, c.value.part(before(give), before(give+distance)))
			c.combine(s, from, to, partner < rank)
		}
	}
	if rank < 2*c.pairs {
		s.round()
		partner := rank ^ 1
		theirs := Span{result.Buf, result.Off + blocks.before(partner), blocks.bytes(partner)}
		if c.member {
			s.send(partner, theirs)
		} else {
			s.recv(partner, own)
		}
	}
	s.copy(Span{Output, 0, own.Len}, own)
	s.round()
}

// reduceScatterPairwise has every rank receive the others' input for its block, from the rank below it on
// downwards, wrapping around. It combines the vectors of lower and of higher ranks separately, to keep the
// order.
func reduceScatterPairwise(s *Schedule, rank, size int, blocks Blocks) {
	bytes := blocks.bytes(rank)
	input := Span{Input, 0, blocks.before(size)}
	block := func(i int) Span { return input.part(blocks.before(i), blocks.before(i)+blocks.bytes(i)) }
	lower, higher, received := s.scratch(bytes), s.scratch(bytes), s.scratch(bytes)
	for distance := 1; distance < size; distance++ {
		from, to := (rank-distance+size)%size, (rank+distance)%size
		if from == size-1 {
			s.recv(from, higher)
		} else {
			s.recv(from, received)
		}
		s.send(to, block(to))
		if distance == 1 {
			s.copy(lower, block(rank))
		}
		switch {
		case from < rank:
			s.reduce(lower, received, true)
		case from < size-1:
			s.reduce(higher, received, true)
		}
		if distance < size-1 {
			s.round()
		}
	}
	if size == 1 {
		s.copy(lower, block(rank))
	}
	if rank < size-1 {
		s.reduce(lower, higher, false)
	}
	s.copy(Span{Output, 0, bytes}, lower)
	s.round()
}
