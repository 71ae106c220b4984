package coll

// allgatherAlgorithms are the algorithms of Allgather, which gathers the blocks of Input of all ranks in
// Output at every rank, in rank order. Input may be the rank's own block of Output.
var allgatherAlgorithms = []algorithm{
	{"bruck", nil, func(s *Schedule, c *Call) {
		allgatherBruck(s, c.Rank, c.Size,
			even(c.bytes()))
	}},
	{"ring", nil, func(s *Schedule, c *Call) {
		allgatherRing(s, c.Rank, c.Size,
			even(c.bytes()))
	}},
	{"recursive-doubling", sizePowerOfTwo, func(s *Schedule, c *Call) {
		allgatherDoubling(s, c.Rank, c.Size, c.bytes())
	}},
}

// allgathervAlgorithms are the algorithms of Allgatherv, which is Allgather with blocks of different lengths,
// Recv, which all ranks know.
var allgathervAlgorithms = []algorithm{
	{"bruck", nil, func(s *Schedule, c *Call) {
		allgatherBruck(s, c.Rank, c.Size,
			*c.Recv)
	}},
	{"ring", nil, func(s *Schedule, c *Call) { allgatherRing(s, c.Rank, c.Size, *c.Recv) }},
}

// allgatherDoubling exchanges all blocks collected so far with partners at doubling distance. The size is a
// power of two.
func allgatherDoubling(s *Schedule, rank, size, block int) {
	held, own := Span{Input, 0, block}, Span{Output, rank * block, block}
	for distance := 1; distance < size; distance *= 2 {
		partner := rank ^ distance
		mine, theirs := rank&^(distance-1), partner&^(distance-1)
		s.recv(partner, Span{Output, theirs * block, distance * block})
		s.send(partner, held)
		if distance == 1 {
			s.copy(own, held)
		}
		s.round()
		held = Span{Output, min(mine, theirs) * block, 2 * distance * block}
	}
	if size == 1 {
		s.copy(own, held)
		s.round()
	}
}

// allgatherBruck (J. Bruck et al., 1997) has every rank collect the blocks in scratch memory, from its own on
// and wrapping around. The number of blocks doubles in each round, for any size.
func allgatherBruck(s *Schedule, rank, size int, blocks Blocks) {
	total := blocks.before(size)
	held := s.scratch(total)
	own := Span{Input, 0, blocks.bytes(rank)}
	place := blocks.span(Output, rank)
	// length returns the bytes of n blocks from one rank on, wrapping around.
	length := func(from, n int) int {
		from %= size
		if from+n <= size {
			return blocks.before(from+n) - blocks.before(from)
		}
		return total - blocks.before(from) + blocks.before(from+n-size)
	}
	for distance := 1; distance < size; distance *= 2 {
		n := min(distance, size-distance)
		at := length(rank, distance)
		s.recv((rank+distance)%size, held.part(at, at+length(rank+distance, n)))
		if distance == 1 {
			s.send((rank-1+size)%size, own)
			s.copy(held.part(0, own.Len), own)
			s.copy(place, own)
		} else {
			s.send((rank-distance+size)%size, held.part(0, length(rank, n)))
		}
		if 2*distance < size {
			s.round()
		}
	}
	if size == 1 {
		s.copy(place, own)
	}
	at := own.Len
	for step := 1; step < size; step++ {
		to := blocks.span(Output, (rank+step)%size)
		s.copy(to, held.part(at, at+to.Len))
		at += to.Len
	}
	s.round()
}

// allgatherRing passes every block around the ring.
func allgatherRing(s *Schedule, rank, size int, blocks Blocks) {
	own := Span{Input, 0, blocks.bytes(rank)}
	left, right := (rank-1+size)%size, (rank+1)%size
	from := own
	for step := range size - 1 {
		to := blocks.span(Output, (rank-step-1+size)%size)
		s.recv(left, to)
		s.send(right, from)
		if step == 0 {
			s.copy(blocks.span(Output, rank), own)
		}
		s.round()
		from = to
	}
	if size == 1 {
		s.copy(blocks.span(Output, rank), own)
		s.round()
	}
}
