package coll

// The buffer of a Bcast is Output, at the root too. Input is not used.
var bcastAlgorithms = []algorithm{
	{"binomial", nil, func(s *Schedule, c *Call) {
		bcastTree(s, c.Rank, c.Size, c.Root,
			c.bytes())
	}},
	{"scatter-doubling", sizePowerOfTwo, func(s *Schedule, c *Call) {
		bcastScatter(s, c.Rank, c.Size, c.Root, c.bytes(), true)
	}},
	{"scatter-ring", nil, func(s *Schedule, c *Call) {
		bcastScatter(s, c.Rank, c.Size, c.Root, c.bytes(), false)
	}},
	{"k-nomial", nil, bcastKnomial},
	{"pipelined-chain", nil, func(s *Schedule, c *Call) { bcastPipelined(s, c, 1) }},
	{"pipelined-binary", nil, func(s *Schedule, c *Call) { bcastPipelined(s, c, 2) }},
	{"two-level", twoLevels, bcastTwoLevel},
}

// bcastTree passes the whole buffer down a binomial tree, to the largest subtree first.
func bcastTree(s *Schedule, rank, size, root, bytes int) {
	t := tree{root, size}
	v := t.vertex(rank)
	buf := Span{Output, 0, bytes}
	if v != 0 {
		s.recv(t.rank(v-t.span(v)), buf)
		s.round()
	}
	for distance := t.span(v) / 2; distance > 0; distance /= 2 {
		if v+distance < size {
			s.send(t.rank(v+distance), buf)
		}
	}
	s.round()
}

// bcastScatter scatters blocks down a binomial tree, so that each vertex holds those of its subtree, and then
// gathers the blocks at all ranks (R. van de Geijn), by recursive doubling or around a ring. No vertex
// receives a block twice.
func bcastScatter(s *Schedule, rank, size, root, bytes int, doubling bool) {
	t := tree{root, size}
	v := t.vertex(rank)
	block := (bytes + size - 1) / size
	blocks := func(first, last int) Span {
		return Span{Output, 0, bytes}.part(min(first*block, bytes), min(last*block, bytes))
	}
	if v != 0 {
		s.recv(t.rank(v-t.span(v)), blocks(v, v+t.extent(v)))
		s.round()
	}
	for distance := t.span(v) / 2; distance > 0; distance /= 2 {
		if child := v + distance; child < size {
			s.send(t.rank(child), blocks(child, child+t.extent(child)))
		}
	}
	s.round()

	if doubling {
		for distance := 1; distance < size; distance *= 2 {
			partner := v ^ distance
			mine, theirs := v&^(distance-1), partner&^(distance-1)
			if !t.holds(v, theirs, theirs+distance) {
				s.recv(t.rank(partner), blocks(theirs, theirs+distance))
			}
			if !t.holds(partner, mine, mine+distance) {
				s.send(t.rank(partner), blocks(mine, mine+distance))
			}
			s.round()
		}
		return
	}
	left, right := (v-1+size)%size, (v+1)%size
	for step := range size - 1 {
		in, out := (v-step-1+size)%size, (v-step+size)%size
		if !t.holds(v, in, in+1) {
			s.recv(t.rank(left), blocks(in, in+1))
		}
		if !t.holds(right, out, out+1) {
			s.send(t.rank(right), blocks(out, out+1))
		}
		s.round()
	}
}
