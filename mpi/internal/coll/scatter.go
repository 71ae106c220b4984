package coll

// Scatter brings a block of Input at the root to Output at every rank, in the order of ranks. Input is not used
// elsewhere. At the root Output may be its own block of Input, which then stays as it is.
func Scatter(s *Schedule, rank, size, root, blockBytes int) {
	if blockBytes <= gatherTreeMax {
		scatterTree(s, rank, size, root, blockBytes)
		return
	}
	scatterLinear(s, rank, size, root, blockBytes, even(blockBytes))
}

// Scatterv is Scatter with blocks of different lengths: bytes is that of this rank's own, and the blocks, significant at
// the root only, tell where they come from.
func Scatterv(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	scatterLinear(s, rank, size, root, bytes, blocks)
}

// scatterTree hands the blocks down a binomial tree, to each vertex those of its subtree.
func scatterTree(s *Schedule, rank, size, root, block int) {
	s.Reset()
	t := tree{root, size}
	v := t.vertex(rank)
	own := Span{Output, 0, block}
	if v == 0 {
		for distance := t.span(0) / 2; distance > 0; distance /= 2 {
			t.ranges(distance, func(first, last int) {
				s.send(t.rank(distance), Span{Input, t.rank(first) * block, (last - first) * block})
			})
		}
		s.copy(own, Span{Input, root * block, block})
		s.round()
		return
	}
	held := own
	if t.extent(v) > 1 {
		held = s.scratch(t.extent(v) * block)
	}
	if parent := v - t.span(v); parent == 0 {
		t.ranges(v, func(first, last int) {
			s.recv(root, held.part((first-v)*block, (last-v)*block))
		})
	} else {
		s.recv(t.rank(parent), held)
	}
	s.round()
	for distance := t.span(v) / 2; distance > 0; distance /= 2 {
		if child := v + distance; child < size {
			s.send(t.rank(child), held.part(distance*block, (distance+t.extent(child))*block))
		}
	}
	s.copy(own, held.part(0, block))
	s.round()
}

// scatterLinear has the root send every rank its block.
func scatterLinear(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	s.Reset()
	own := Span{Output, 0, bytes}
	if rank != root {
		s.recv(root, own)
		s.round()
		return
	}
	for step := 1; step < size; step++ {
		peer := (root + step) % size
		s.send(peer, blocks.span(Input, peer))
	}
	s.copy(own, blocks.span(Input, root))
	s.round()
}
