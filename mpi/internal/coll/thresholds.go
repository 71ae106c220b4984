package coll

// Bounds of algorithms. For the choice between algorithms, see cost.go, direct.go and pull.go.
const (
	// alltoallWindow exchanges of an Alltoall go in one round of the scattered algorithm.
	alltoallWindow = 8
	// stagedMax is the length up to which messages of memory that is not contiguous are sent several in a
	// round.
	stagedMax = 4 << 10
	// emptyBlocksMax is the largest number of ranks between which empty blocks of an Alltoallv are sent.
	emptyBlocksMax = 16
)

func powerOfTwo(n int) bool {
	return n&(n-1) == 0
}
