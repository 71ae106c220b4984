package coll

var barrierAlgorithms = []algorithm{
	{"dissemination", nil, func(s *Schedule,
		c *Call) {
		barrierDissemination(s, c.Rank, c.Size)
	}},
	{"linear", nil, func(s *Schedule, c *Call) { barrierFlat(s, c.Rank, c.Size) }},
	{"two-level", twoLevels, barrierTwoLevel},
}

// barrierDissemination (D. Hensgen, R. Finkel and U. Manber, 1988): in round k every rank tells the rank 2^k
// above it that all ranks it has heard of have arrived. After log2(size) rounds, rounded up, every rank has
// heard of all.
func barrierDissemination(s *Schedule, rank, size int) {
	for distance := 1; distance < size; distance *= 2 {
		s.steps = append(s.steps,
			Step{Kind: Recv, Peer: (rank - distance + size) % size},
			Step{Kind: Send, Peer: (rank + distance) % size})
		s.round()
	}
}

// barrierFlat has every rank tell rank 0, which then tells every rank: a rank needs a processor only twice.
func barrierFlat(s *Schedule, rank, size int) {
	all := func(kind Kind) {
		for peer := 1; peer < size; peer++ {
			s.steps = append(s.steps, Step{Kind: kind, Peer: peer})
		}
		s.round()
	}
	if rank == 0 {
		all(Recv)
		all(Send)
		return
	}
	s.steps = append(s.steps, Step{Kind: Send, Peer: 0})
	s.round()
	s.steps = append(s.steps, Step{Kind: Recv, Peer: 0})
	s.round()
}
