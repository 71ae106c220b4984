package coll

// Barrier is dissemination (D. Hensgen, R. Finkel and U. Manber, 1988): in round k every rank tells the one 2^k above it
// that all it has heard of have arrived, so that after log2(size) rounds, rounded up, everyone has heard of everyone.
// The messages are empty.
func Barrier(s *Schedule, rank, size int) {
	s.Reset()
	for distance := 1; distance < size; distance *= 2 {
		s.steps = append(s.steps,
			Step{Kind: Recv, Peer: (rank - distance + size) % size},
			Step{Kind: Send, Peer: (rank + distance) % size})
		s.round()
	}
}
