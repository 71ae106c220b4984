package coll

// gatherAlgorithms are the algorithms of Gather, which gathers the blocks of Input of all ranks in Output at
// the root, in rank order. Output is not used elsewhere. At the root Input may be its own block of Output.
var gatherAlgorithms = []algorithm{
	{"binomial", nil, func(s *Schedule, c *Call) {
		gatherTree(s, c.Rank, c.Size, c.Root,
			c.bytes())
	}},
	{"linear", nil, func(s *Schedule, c *Call) {
		gatherLinear(s, c.Rank, c.Size, c.Root, c.bytes(), even(c.bytes()))
	}},
}

// gathervAlgorithms are the algorithms of Gatherv, which is Gather with blocks of different lengths: the
// call's count is that of this rank's own block, and Recv, significant only at the root, describes the blocks
// in Output.
var gathervAlgorithms = []algorithm{
	{"linear", nil, func(s *Schedule, c *Call) {
		gatherLinear(s, c.Rank, c.Size, c.Root, c.bytes(),
			c.Recv.orNone())
	}},
}

// gatherTree collects the blocks up a binomial tree, each vertex those of its subtree. Receives may be posted
// in any order; the largest subtree is first because Scatter, the reverse, sends to it first.
func gatherTree(s *Schedule, rank, size, root, block int) {
	t := tree{root, size}
	v := t.vertex(rank)
	own := Span{Input, 0, block}
	if v == 0 {
		for distance := t.span(0) / 2; distance > 0; distance /= 2 {
			t.ranges(distance, func(first, last int) {
				at := t.rank(first) * block
				s.recv(t.rank(distance), Span{Output, at, (last - first) * block})
			})
		}
		s.copy(Span{Output, root * block, block}, own)
		s.round()
		return
	}
	held := own
	if t.extent(v) > 1 {
		held = s.scratch(t.extent(v) * block)
		for distance := t.span(v) / 2; distance > 0; distance /= 2 {
			if child := v + distance; child < size {
				s.recv(t.rank(child), held.part(distance*block, (distance+t.extent(child))*block))
			}
		}
		s.copy(held.part(0, block), own)
		s.round()
	}
	if parent := v - t.span(v); parent == 0 {
		t.ranges(v, func(first, last int) {
			s.send(root, held.part((first-v)*block, (last-v)*block))
		})
	} else {
		s.send(t.rank(parent), held)
	}
	s.round()
}

// gatherLinear has every rank send its block to the root, which receives all at once.
func gatherLinear(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	own := Span{Input, 0, bytes}
	if rank != root {
		s.send(root, own)
		s.round()
		return
	}
	for step := 1; step < size; step++ {
		peer := (root + step) % size
		s.recv(peer, blocks.span(Output, peer))
	}
	s.copy(blocks.span(Output, root), own)
	s.round()
}
