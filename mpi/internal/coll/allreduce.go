package coll

// allreduceAlgorithms are the algorithms of Allreduce, which combines count elements of Input at all ranks
// into Output at all ranks, in rank order unless the operator is commutative. All ranks get the same bits, as
// each element is combined by one rank for all, or by all in the same order of operands. Input may be Output.
var allreduceAlgorithms = []algorithm{
	{"recursive-doubling", nil, func(s *Schedule, c *Call) {
		allreduceDoubling(s, c.Rank, c.Size, c.Count, c.ElemSize)
	}},
	{"rabenseifner", nil, func(s *Schedule, c *Call) {
		if c.Size == 2 {
			allreducePair(s, c)
			return
		}
		allreduceHalving(s, c.Rank, c.Size, c.Count, c.ElemSize)
	}},
	{"ring", commutative, func(s *Schedule, c *Call) {
		allreduceRing(s, c.Rank, c.Size, c.Count, c.ElemSize)
	}},
	{"reduce-bcast", nil, func(s *Schedule, c *Call) {
		reduceTree(s, c.Rank, c.Size, 0, c.Count, c.ElemSize, c.Commutative)
		bcastTree(s, c.Rank, c.Size, 0, c.bytes())
	}},
	{"two-level", twoLevels, allreduceTwoLevel},
}

// allreduceDoubling has every rank exchange the whole vector with partners at doubling distance.
func allreduceDoubling(s *Schedule, rank, size, count, elemSize int) {
	bytes := count * elemSize
	double(s, rank, size, Span{Input, 0, bytes}, Span{Output, 0, bytes})
}

// double leaves the combination of all ranks' input in result at all ranks.
func double(s *Schedule, rank, size int, input, result Span) {
	c := newPof2(rank, size, noRoot, input, result)
	c.preReduce(s)
	if c.member {
		c.double(s)
	}
	c.postBcast(s)
}

// allreduceHalving is Rabenseifner's: a reduce-scatter by recursive halving, then an allgather that goes the
// same way back.
func allreduceHalving(s *Schedule, rank, size, count, elemSize int) {
	bytes := count * elemSize
	c := newPof2(rank, size, noRoot, Span{Input, 0, bytes}, Span{Output, 0, bytes})
	c.preReduce(s)
	if c.member {
		c.halve(s, count, elemSize)
		c.allgather(s, count, elemSize)
	}
	c.postBcast(s)
}

// allreduceRing sends each segment around the ring twice: first to combine it, then to distribute the result.
// The combination begins at a different rank for each segment, so the operator must be commutative.
func allreduceRing(s *Schedule, rank, size, count, elemSize int) {
	bytes := count * elemSize
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	if size == 1 {
		s.copy(result, input)
		s.round()
		return
	}
	segment := func(buf Span, i int) Span {
		i = (i + 2*size) % size
		return buf.part(i*count/size*elemSize, (i+1)*count/size*elemSize)
	}
	received := s.scratch((count + size - 1) / size * elemSize)
	left, right := (rank-1+size)%size, (rank+1)%size
	from := input
	for step := range size - 1 {
		in, out := segment(result, rank-step-1), segment(from, rank-step)
		got := received.part(0, in.Len)
		s.recv(left, got)
		s.send(right, out)
		s.copy(in, segment(input, rank-step-1))
		s.reduce(in, got, true)
		s.round()
		from = result
	}
	for step := range size - 1 {
		s.recv(left, segment(result, rank-step))
		s.send(right, segment(result, rank-step+1))
		s.round()
	}
}

// pairBlock is the longest block of an Allreduce of two ranks, in bytes. Each of its messages has half of it.
// A block more costs an exchange of announcements and grants, over TCP inside a host 35 µs with its waits.
// Messages of more than 2 MiB would leave the caches.
const pairBlock = 4 << 20

// allreducePair is allreduceHalving of two ranks, in blocks: while the ranks exchange what they have combined
// of a block, they exchange what they have to combine of the next. Where this rank's vector may be the right
// operand, the peer's is received into the result, and nothing is copied.
func allreducePair(s *Schedule, c *Call) {
	peer, elemSize := 1-c.Rank, c.ElemSize
	input, result := Span{Input, 0, c.bytes()}, Span{Output, 0, c.bytes()}
	g := segments{c.Count, elemSize, max(pairBlock/max(elemSize, 1), 2)}
	half := func(of Span, block, number int) Span {
		b := g.of(of, block)
		from, to := share(number, 2, b.Len/max(elemSize, 1))
		return b.part(from*elemSize, to*elemSize)
	}
	var received Span
	if !c.combinesInput() {
		received = s.scratch((min(g.length, c.Count) + 1) / 2 * elemSize)
	}
	for i := range g.number() + 1 {
		var own, mine, got Span
		if i < g.number() {
			own, mine = half(input, i, c.Rank), half(result, i, c.Rank)
			if got = mine; !c.combinesInput() {
				got = received.part(0, mine.Len)
			}
			s.recv(peer, got)
			s.send(peer, half(input, i, peer))
		}
		if i > 0 {
			s.recv(peer, half(result, i-1, peer))
			s.send(peer, half(result, i-1, c.Rank))
		}
		if c.combinesInput() {
			s.reduce(mine, own, false)
		} else {
			s.copy(mine, own)
			s.reduce(mine, got, peer < c.Rank)
		}
		s.round()
	}
}
