package coll

// ReduceScatter combines Input at all ranks, in the order of ranks unless the operator is commutative, and brings to
// Output at each rank its block of the result. Blocks are of counts[rank] elements and follow one another. Input may
// begin where Output does.
func ReduceScatter(s *Schedule, rank, size int, counts []int, elemSize int, commutative bool) {
	reduceScatter(s, rank, size, Blocks{Counts: counts, ElemSize: elemSize}, elemSize, commutative)
}

// ReduceScatterBlock is ReduceScatter with blocks of count elements each.
func ReduceScatterBlock(s *Schedule, rank, size, count, elemSize int, commutative bool) {
	reduceScatter(s, rank, size, even(count*elemSize), elemSize, commutative)
}

func reduceScatter(s *Schedule, rank, size int, blocks Blocks, elemSize int, commutative bool) {
	switch total := blocks.before(size); {
	case total <= reduceScatterDoublingMax:
		reduceScatterDoubling(s, rank, size, blocks)
	case commutative && total <= reduceScatterHalvingMax:
		reduceScatterHalving(s, rank, size, blocks)
	default:
		reduceScatterPairwise(s, rank, size, blocks)
	}
}

// reduceScatterDoubling combines everything everywhere.
func reduceScatterDoubling(s *Schedule, rank, size int, blocks Blocks) {
	s.Reset()
	total := blocks.before(size)
	result := s.scratch(total)
	double(s, rank, size, Span{Input, 0, total}, result)
	at := blocks.before(rank)
	s.copy(Span{Output, 0, blocks.bytes(rank)}, result.part(at, at+blocks.bytes(rank)))
	s.round()
}

// reduceScatterHalving has partners at halving distance take over the blocks of their half of the ranks. It combines
// ranks that are not neighbours, hence for commutative operators only.
func reduceScatterHalving(s *Schedule, rank, size int, blocks Blocks) {
	s.Reset()
	total := blocks.before(size)
	result := s.scratch(total)
	own := result.part(blocks.before(rank), blocks.before(rank+1))
	c := newCore(rank, size, noRoot, Span{Input, 0, total}, result)
	c.fold(s)
	// The blocks of the ranks that a range of numbers stands for.
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

// reduceScatterPairwise has every rank receive the others' input for its block, from the rank below on downwards and
// round. What comes from lower ranks and what comes from higher ranks is combined apart, so that the order is kept.
func reduceScatterPairwise(s *Schedule, rank, size int, blocks Blocks) {
	s.Reset()
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
