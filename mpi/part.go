package mpi

// Part divides n items among size ranks, as equally as possible, in rank order: a rank has the count items
// from first on. The first n%size ranks have one item more than the others. Part returns 0, 0 for a rank that
// there is not, or if n is negative.
func Part(n, rank, size int) (first, count int) {
	if n < 0 || rank < 0 || rank >= size {
		return 0, 0
	}
	count = n / size
	first = rank*count + min(rank, n%size)
	if rank < n%size {
		count++
	}
	return first, count
}
