package coll

var scanAlgorithms = []algorithm{
	{"recursive-doubling", nil, func(s *Schedule, c *Call) {
		scanDoubling(s, c.Rank, c.Size, c.Count,
			c.ElemSize)
	}},
	{"pipelined-chain", nil, scanChain},
}

var exscanAlgorithms = []algorithm{
	{"recursive-doubling", nil, func(s *Schedule, c *Call) {
		exscanDoubling(s, c.Rank, c.Size, c.Count,
			c.ElemSize)
	}},
}

// scanDoubling combines count elements of Input at the ranks up to and including this one into Output, in
// rank order. Input may be Output.
func scanDoubling(s *Schedule, rank, size, count, elemSize int) {
	bytes := count * elemSize
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	received := s.scratch(bytes)
	value := input
	// After each round the result covers twice as many ranks, up to and including this one.
	for distance := 1; distance < size; distance *= 2 {
		if rank >= distance {
			s.recv(rank-distance, received)
		}
		if rank+distance < size {
			s.send(rank+distance, value)
		}
		if distance == 1 {
			s.copy(result, input)
		}
		if rank >= distance {
			s.reduce(result, received, true)
		}
		s.round()
		value = result
	}
	if size == 1 {
		s.copy(result, input)
		s.round()
	}
}

// exscanDoubling combines count elements of Input at the ranks below this one into Output, in rank order.
// Output is not used at rank 0. Input may be Output.
func exscanDoubling(s *Schedule, rank, size, count, elemSize int) {
	bytes := count * elemSize
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	// The vector for the ranks above includes this rank's own elements, so it is separate from the result.
	inclusive, received, twice := s.scratch(bytes), s.scratch(bytes), s.scratch(bytes)
	value := input
	for distance := 1; distance < size; distance *= 2 {
		fromBelow, onward := rank >= distance, rank+2*distance < size
		if fromBelow {
			s.recv(rank-distance, received)
		}
		if rank+distance < size {
			s.send(rank+distance, value)
		}
		if distance == 1 && onward {
			s.copy(inclusive, input)
		}
		if fromBelow {
			switch {
			case distance == 1:
				s.copy(result, received)
			case onward:
				s.copy(twice, received)
				s.reduce(result, twice, true)
			default:
				s.reduce(result, received, true)
			}
			if onward {
				s.reduce(inclusive, received, true)
			}
		}
		s.round()
		value = inclusive
	}
}
