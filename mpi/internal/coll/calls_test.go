package coll

// The functions below build calls as package mpi does, for tests that compare algorithms with what is chosen.

// Barrier builds one by way of rank 0, or by dissemination.
func Barrier(s *Schedule, rank, size int, byRoot bool) {
	if byRoot {
		barrierFlat(s, rank, size)
		return
	}
	barrierDissemination(s, rank, size)
}

func Reduce(s *Schedule, rank, size, root, count, elemSize int, commutative bool) {
	(&Call{Operation: OpReduce, Rank: rank, Size: size, Root: root, Count: count, ElemSize: elemSize,
		Commutative: commutative}).Build(s)
}

func Gather(s *Schedule, rank, size, root, bytes int) {
	(&Call{Operation: OpGather, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1}).Build(s)
}

func Gatherv(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	(&Call{Operation: OpGatherv, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1,
		Recv: &blocks}).Build(s)
}

func Scatter(s *Schedule, rank, size, root, bytes int) {
	(&Call{Operation: OpScatter, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1}).Build(s)
}

func Scatterv(s *Schedule, rank, size, root, bytes int, blocks Blocks) {
	(&Call{Operation: OpScatterv, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1,
		Send: &blocks}).Build(s)
}

func Allgatherv(s *Schedule, rank, size int, blocks Blocks) {
	(&Call{Operation: OpAllgatherv, Rank: rank, Size: size, Recv: &blocks}).Build(s)
}

func Alltoall(s *Schedule, rank, size, bytes int) {
	(&Call{Operation: OpAlltoall, Rank: rank, Size: size, Count: bytes, ElemSize: 1}).Build(s)
}

func Alltoallv(s *Schedule, rank, size int, from, to Blocks) {
	(&Call{Operation: OpAlltoallv, Rank: rank, Size: size, Send: &from, Recv: &to}).Build(s)
}

func ReduceScatter(s *Schedule, rank, size int, counts []int, elemSize int, commutative bool) {
	(&Call{Operation: OpReduceScatter, Rank: rank, Size: size, ElemSize: elemSize, Commutative: commutative,
		Recv: &Blocks{Counts: counts, ElemSize: elemSize}}).Build(s)
}

func ReduceScatterBlock(s *Schedule, rank, size, count, elemSize int, commutative bool) {
	(&Call{Operation: OpReduceScatterBlock, Rank: rank, Size: size, Count: count, ElemSize: elemSize,
		Commutative: commutative}).Build(s)
}

func Scan(s *Schedule, rank, size, count, elemSize int) {
	(&Call{Operation: OpScan, Rank: rank, Size: size, Count: count, ElemSize: elemSize}).Build(s)
}

func Exscan(s *Schedule, rank, size, count, elemSize int) {
	(&Call{Operation: OpExscan, Rank: rank, Size: size, Count: count, ElemSize: elemSize}).Build(s)
}
