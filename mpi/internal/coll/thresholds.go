package coll

// Where one algorithm takes over from another, in bytes. An algorithm of few rounds suits what is small,
// because each round costs a latency; one that moves few bytes suits what is large. The cost model and the
// algorithms are those of R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005; the values start from those of the paper and of MPICH
// (maint/tuning/coll/mpir/generic.json), and where weft differs the reason is given. All are compared with
// figures that every rank knows, so that all ranks choose alike.
const (
	// barrierFlatRanks is the fewest crowded ranks whose Barrier goes by way of rank 0. On two processors 8
	// ranks take 14 to 20 µs instead of 22 then, and 32 take 80 instead of 180; 4 take no less.
	barrierFlatRanks = 6

	// bcastTreeMax is the largest Bcast by a binomial tree, in which the root sends the whole buffer
	// log2(size) times. MPICH: 12288.
	bcastTreeMax = 12 << 10
	// bcastTreeRanks is the number of ranks below which the tree always serves: it is then so shallow that
	// scattering the buffer first saves nothing. MPICH: 8.
	bcastTreeRanks = 8
	// bcastDoublingMax is the largest Bcast whose second half, the allgather, goes by recursive doubling
	// where the size is a power of two. Beyond it the ring, whose neighbours stay the same, is as fast and
	// needs fewer connections. MPICH: 524288.
	bcastDoublingMax = 512 << 10

	// reduceTreeMax is the largest Reduce by a binomial tree. MPICH: 2048.
	reduceTreeMax = 2 << 10

	// allreduceDoublingMax is the largest Allreduce by recursive doubling, in which every rank receives and
	// combines the whole vector log2(size) times. The paper: 2048. MPICH has since lowered it to 8; but
	// between processes of one host, and over TCP all the more, a message of 1 KiB takes at most twice as
	// long as one of 8 bytes, so that sparing rounds still pays below.
	allreduceDoublingMax = 2 << 10
	// allreduceRingMin is the smallest Allreduce by a ring where the size is not a power of two and the
	// operator is commutative: it spares the folding that halving needs there, which moves the whole vector
	// once more each way, but takes 2(size-1) rounds. In bytes for each rank, since the rounds grow with the
	// ranks as well: below it a message of the ring is nearly all latency.
	allreduceRingMin = 8 << 10

	// gatherTreeMax is the largest block of a Gather or Scatter by a binomial tree, which spares the root all
	// but log2(size) messages and has the bytes copied at each level. Beyond it every rank has a message of
	// its own with the root, straight between the callers' buffers. MPICH uses the tree always, Open MPI up
	// to some KiB by size.
	gatherTreeMax = 2 << 10

	// allgatherShortMax is the largest Allgather, all blocks together, by Bruck's algorithm, which copies
	// once more. MPICH: 81920 where the size is not a power of two.
	allgatherShortMax = 80 << 10
	// allgatherDoublingMax is the same for recursive doubling, which serves powers of two and copies nothing.
	// MPICH: 524288.
	allgatherDoublingMax = 512 << 10

	// alltoallBruckMax is the largest block of an Alltoall by Bruck's algorithm, in which a byte travels
	// log2(size)/2 times. MPICH: 256, and from 8 ranks on.
	alltoallBruckMax   = 256
	alltoallBruckRanks = 8
	// alltoallTogetherMax is the largest block of which alltoallWindow exchanges go in one round; larger ones
	// go one by one, so that each gets the whole bandwidth and no rank is asked by many at once. MPICH:
	// 32768.
	alltoallTogetherMax = 32 << 10
	alltoallWindow      = 8
	// emptyBlocksMax is the largest number of ranks between which empty blocks of an Alltoallv are sent.
	emptyBlocksMax = 16

	// reduceScatterDoublingMax is the largest ReduceScatter, all blocks together, that is an allreduce by
	// recursive doubling of which each rank keeps its block.
	reduceScatterDoublingMax = 512
	// reduceScatterHalvingMax is the largest by recursive halving, for commutative operators. Beyond it
	// blocks are exchanged in pairs. MPICH: 524288.
	reduceScatterHalvingMax = 512 << 10
)

func powerOfTwo(n int) bool {
	return n&(n-1) == 0
}
