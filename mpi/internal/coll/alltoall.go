package coll

// alltoallAlgorithms are the algorithms of Alltoall, which sends the block of Input for each rank to that
// rank's Output, where blocks are in the order of their senders. Input and Output do not overlap, unless the
// call is in place.
var alltoallAlgorithms = []algorithm{
	{"bruck", nil, func(s *Schedule, c *Call) {
		outOfPlace(s, c, func() { alltoallBruck(s, c.Rank, c.Size, c.bytes()) })
	}},
	{"scattered", nil, func(s *Schedule, c *Call) { alltoallEven(s, c, alltoallWindow) }},
	{"pairwise", nil, func(s *Schedule, c *Call) { alltoallEven(s, c, 1) }},
}

func alltoallEven(s *Schedule, c *Call, window int) {
	blocks := even(c.bytes())
	outOfPlace(s, c, func() { alltoallPairwise(s, c.Rank, c.Size, blocks, blocks, window) })
}

// alltoallvAlgorithms are the algorithms of Alltoallv, which is Alltoall with blocks of different lengths:
// Send are those of Input, Recv those of Output. Both are this rank's own; what one rank sends to another is
// as long as what that one expects.
var alltoallvAlgorithms = []algorithm{
	{"scattered", nil, func(s *Schedule, c *Call) {
		window := alltoallWindow
		if c.Bounced && max(c.Send.longest(c.Size), c.Recv.longest(c.Size)) > bouncedMax {
			window = 1 // only one message at a time has such memory
		}
		outOfPlace(s, c, func() { alltoallPairwise(s, c.Rank, c.Size, *c.Send, *c.Recv, window) })
	}},
}

// outOfPlace builds a schedule that reads a copy of Output instead of Input if the call is in place.
func outOfPlace(s *Schedule, c *Call, build func()) {
	if !c.InPlace {
		build()
		return
	}
	length := c.Size * c.bytes()
	if c.Recv != nil {
		length = c.Recv.extent(c.Size)
	}
	held := s.scratch(length)
	s.copy(held, Span{Output, 0, length})
	s.round()
	first := len(s.steps)
	build()
	s.redirect(first, Input, held)
}

// alltoallPairwise sends to the ranks above and receives from those below, at the same distance, window
// distances in a round. If blocks differ in length, empty ones are omitted among many ranks, as most are
// empty where each rank has few partners. Among few ranks they are messages, so that ranks whose lengths do
// not match find out.
func alltoallPairwise(s *Schedule, rank, size int, from, to Blocks, window int) {
	goes := func(b Blocks, block Span) bool {
		return block.Len > 0 || b.Counts == nil || size <= emptyBlocksMax
	}
	for first := 1; first < size; first += window {
		last := min(first+window, size)
		for distance := first; distance < last; distance++ {
			peer := (rank - distance + size) % size
			if block := to.span(Output, peer); goes(to, block) {
				s.recv(peer, block.orNowhere())
			}
		}
		for distance := first; distance < last; distance++ {
			peer := (rank + distance) % size
			if block := from.span(Input, peer); goes(from, block) {
				s.send(peer, block.orNowhere())
			}
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

// orNowhere returns p, or the zero Span if p is empty: an empty span may point outside the buffer.
func (p Span) orNowhere() Span {
	if p.Len == 0 {
		return Span{}
	}
	return p
}

// alltoallBruck (J. Bruck et al., 1997) moves each block in steps of powers of two, by the binary
// representation of its distance. Blocks are numbered by that distance; those that move together are packed
// first.
func alltoallBruck(s *Schedule, rank, size, block int) {
	held := s.scratch(size * block)
	packed := s.scratch(size / 2 * block)
	received := s.scratch(size / 2 * block)
	nth := func(p Span, i int) Span { return p.part(i*block, (i+1)*block) }

	// pack copies the blocks that move at a distance from their places, or back.
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
