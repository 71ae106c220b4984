package coll

// Alltoall brings the block of Input for each rank to that rank's Output, where blocks lie in the order of the ranks from
// which they came. Input and Output do not overlap.
func Alltoall(s *Schedule, rank, size, blockBytes int) {
	if blockBytes <= alltoallBruckMax && size >= alltoallBruckRanks {
		alltoallBruck(s, rank, size, blockBytes)
		return
	}
	window := 1
	if blockBytes <= alltoallTogetherMax {
		window = alltoallWindow
	}
	alltoallPairwise(s, rank, size, even(blockBytes), even(blockBytes), window)
}

// Alltoallv is Alltoall with blocks of different lengths: from are those of Input, to those of Output. Both are this
// rank's own; what one rank sends to another is as long as what that one expects.
func Alltoallv(s *Schedule, rank, size int, from, to Blocks) {
	alltoallPairwise(s, rank, size, from, to, alltoallWindow)
}

// alltoallPairwise sends to the ranks above and receives from those below, at the same distance, so many distances in a
// round. Ranks whose messages are empty may be rounds ahead of others.
func alltoallPairwise(s *Schedule, rank, size int, from, to Blocks, window int) {
	s.Reset()
	for first := 1; first < size; first += window {
		last := min(first+window, size)
		for distance := first; distance < last; distance++ {
			peer := (rank - distance + size) % size
			s.recv(peer, to.span(Output, peer))
		}
		for distance := first; distance < last; distance++ {
			peer := (rank + distance) % size
			s.send(peer, from.span(Input, peer))
		}
		if first == 1 {
			s.copy(to.span(Output, rank), from.span(Input, rank))
		}
		s.round()
	}
	if size == 1 {
		s.copy(to.span(Output, 0), from.span(Input, 0))
		s.round()
	}
}

// alltoallBruck (J. Bruck et al., 1997) moves a block by the powers of two of which the distance it has to go is the
// sum. Blocks are numbered by that distance; those that move together are packed first.
func alltoallBruck(s *Schedule, rank, size, block int) {
	s.Reset()
	held := s.scratch(size * block)
	packed := s.scratch(size / 2 * block)
	received := s.scratch(size / 2 * block)
	nth := func(p Span, i int) Span { return p.part(i*block, (i+1)*block) }

	// The numbers that move at a distance, packed from or unpacked to their places.
	pack := func(distance int, unpack bool) (n int) {
		for i := distance; i < size; i++ {
			if i&distance == 0 {
				continue
			}
			if unpack {
				s.copy(nth(held, i), nth(received, n))
			} else {
				s.copy(nth(packed, n), nth(held, i))
			}
			n++
		}
		return n
	}
	for i := range size {
		s.copy(nth(held, i), nth(Span{Input, 0, size * block}, (rank+i)%size))
	}
	n := 0
	if size > 1 {
		n = pack(1, false)
	}
	s.round()
	for distance := 1; distance < size; distance *= 2 {
		s.recv((rank-distance+size)%size, received.part(0, n*block))
		s.send((rank+distance)%size, packed.part(0, n*block))
		pack(distance, true)
		if 2*distance < size {
			n = pack(2*distance, false)
			s.round()
		}
	}
	for i := range size {
		s.copy(nth(Span{Output, 0, size * block}, (rank-i+size)%size), nth(held, i))
	}
	s.round()
}
