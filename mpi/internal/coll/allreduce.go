package coll

// Allreduce combines count elements of Input at all ranks into Output at all ranks, in the order of ranks unless the
// operator is commutative. All ranks get the same bits, as each element is combined by one rank for all, or by all in
// the same order of operands. Input may be Output.
func Allreduce(s *Schedule, rank, size, count, elemSize int, commutative bool) {
	bytes := count * elemSize
	switch {
	case bytes <= allreduceDoublingMax || count < size:
		allreduceDoubling(s, rank, size, count, elemSize)
	case commutative && !powerOfTwo(size) && bytes/size >= allreduceRingMin:
		allreduceRing(s, rank, size, count, elemSize)
	default:
		allreduceHalving(s, rank, size, count, elemSize)
	}
}

// allreduceDoubling has every rank exchange the whole vector with partners at doubling distance.
func allreduceDoubling(s *Schedule, rank, size, count, elemSize int) {
	s.Reset()
	bytes := count * elemSize
	double(s, rank, size, Span{Input, 0, bytes}, Span{Output, 0, bytes})
}

// double leaves the combination of all ranks' input in result at all ranks.
func double(s *Schedule, rank, size int, input, result Span) {
	c := newCore(rank, size, noRoot, input, result)
	c.fold(s)
	if c.member {
		c.double(s)
	}
	c.unfold(s)
}

// allreduceHalving is Rabenseifner's: a reduce-scatter by recursive halving, then an allgather that goes the same way
// back.
func allreduceHalving(s *Schedule, rank, size, count, elemSize int) {
	s.Reset()
	bytes := count * elemSize
	c := newCore(rank, size, noRoot, Span{Input, 0, bytes}, Span{Output, 0, bytes})
	c.fold(s)
	if c.member {
		c.halve(s, count, elemSize)
		c.spread(s, count, elemSize)
	}
	c.unfold(s)
}

// allreduceRing sends each segment round the ring twice: to be combined on the way, then to be kept. The combination
// begins at a different rank for each segment, hence for commutative operators only.
func allreduceRing(s *Schedule, rank, size, count, elemSize int) {
	s.Reset()
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
