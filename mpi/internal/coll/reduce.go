package coll

// reduceAlgorithms are the algorithms of Reduce, which combines count elements of Input at all ranks into
// Output at the root, in rank order unless the operator is commutative. Output is not used elsewhere. At the
// root Input may be Output.
var reduceAlgorithms = []algorithm{
	{binomialName, nil, func(s *Schedule, c *Call) {
		if c.combinesInput() && c.Rank == c.Root {
			s.recvAndCombine(c)
			return
		}
		reduceTree(s, c.Rank, c.Size, c.Root, c.Count, c.ElemSize, c.Commutative)
	}},
	{"rabenseifner", nil, func(s *Schedule, c *Call) {
		reduceHalving(s, c.Rank, c.Size, c.Root, c.Count, c.ElemSize)
	}},
	{"pipelined-chain", nil, reducePipelined},
	{"two-level", twoLevels, reduceTwoLevel},
}

const binomialName = "binomial"

// reduceTree combines up a binomial tree. A vertex combines its children's results in their order, so each
// result covers a range of vertices. With rank 0 at the top this is the rank order, for any root.
func reduceTree(s *Schedule, rank, size, root, count, elemSize int, commutative bool) {
	t := tree{0, size}
	if commutative {
		t.top = root
	}
	v := t.vertex(rank)
	bytes := count * elemSize
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	if t.extent(v) > 1 {
		if rank != root {
			result = s.scratch(bytes)
		}
		first := s.Scratch
		for distance := 1; distance < t.extent(v); distance *= 2 {
			s.recv(t.rank(v+distance), s.scratch(bytes))
		}
		s.copy(result, input)
		for at := first; at < s.Scratch && bytes > 0; at += bytes {
			s.reduce(result, Span{Scratch, at, bytes}, false)
		}
		s.round()
	} else if size == 1 {
		s.copy(result, input)
		s.round()
	} else {
		result = input
	}
	if v != 0 {
		s.send(t.rank(v-t.span(v)), result)
		s.round()
	}
	if top := t.rank(0); top != root {
		switch rank {
		case top:
			s.send(root, result)
		case root:
			s.recv(top, Span{Output, 0, bytes})
		}
		s.round()
	}
}

// reduceHalving is Rabenseifner's reduction: a reduce-scatter by recursive halving, then a gather to the root
// that goes the same way back.
func reduceHalving(s *Schedule, rank, size, root, count, elemSize int) {
	bytes := count * elemSize
	result := Span{Output, 0, bytes}
	if rank != root {
		result = s.scratch(bytes)
	}
	c := newPof2(rank, size, root, Span{Input, 0, bytes}, result)
	c.preReduce(s)
	if c.member {
		c.halve(s, count, elemSize)
		c.gather(s, count, elemSize)
	}
}
