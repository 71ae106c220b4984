package coll

var scanAlgorithms = []algorithm{
	{"recursive-doubling", nil, scanDoubling},
	{"pipelined-chain", nil, scanChain},
}

var exscanAlgorithms = []algorithm{{"recursive-doubling", nil, exscanDoubling}}

// scanDoubling combines Input at the ranks up to and including this one into Output, in rank order. Input may
// be Output.
func scanDoubling(s *Schedule, c *Call) {
	input, result := Span{Input, 0, c.bytes()}, Span{Output, 0, c.bytes()}
	received := s.scratch(c.bytes())
	value := input
	// After each round the result covers twice as many ranks, up to and including this one.
	for distance := 1; distance < c.Size; distance *= 2 {
		lower := received
		if c.Rank >= distance {
			if distance == 1 && c.OwnRight {
				lower = result
			}
			s.recv(c.Rank-distance, lower)
		}
		if c.Rank+distance < c.Size {
			s.send(c.Rank+distance, value)
		}
		switch {
		case lower == result:
			s.reduce(result, input, false)
		case distance == 1:
			s.copy(result, input)
			fallthrough
		default:
			if c.Rank >= distance {
				s.reduce(result, received, true)
			}
		}
		s.round()
		value = result
	}
	if c.Size == 1 {
		s.copy(result, input)
		s.round()
	}
}

// exscanDoubling combines Input at the ranks below this one into Output, in rank order. Output is not used at
// rank 0. Input may be Output.
func exscanDoubling(s *Schedule, c *Call) {
	bytes := c.bytes()
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	// The vector for the ranks above includes this rank's own elements, so it is separate from the result.
	inclusive, received, twice := s.scratch(bytes), s.scratch(bytes), s.scratch(bytes)
	value := input
	for distance := 1; distance < c.Size; distance *= 2 {
		fromBelow, onward := c.Rank >= distance, c.Rank+2*distance < c.Size
		intoResult := distance == 1 && !onward && c.scansIntoResult()
		switch {
		case fromBelow && intoResult:
			s.recv(c.Rank-1, result)
		case fromBelow:
			s.recv(c.Rank-distance, received)
		}
		if c.Rank+distance < c.Size {
			s.send(c.Rank+distance, value)
		}
		if distance == 1 && onward {
			s.copy(inclusive, input)
		}
		if fromBelow && !intoResult {
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

// scansIntoResult reports whether a rank of a Scan or Exscan may receive a vector into its result, while it
// still sends its Input, which may be its Output, or needs it as the right operand.
func (c *Call) scansIntoResult() bool {
	return c.OwnRight || c.Operation == OpExscan && c.Rank == c.Size-1
}
