package coll

// Bounds of algorithms. For the choice between algorithms, see cost.go, direct.go and pull.go.
const (
	// alltoallWindow exchanges of an Alltoall go in one round of the scattered algorithm.
	alltoallWindow = 8
	// stagedMax is the length of the longest block up to which a round of an Alltoallv of memory that is not
	// contiguous has several messages (Call.Staged).
	stagedMax = 4 << 10
	// emptyBlocksMax is the largest number of ranks between which empty blocks of an Alltoallv are sent.
	emptyBlocksMax = 16
)

func powerOfTwo(n int) bool {
	return n&(n-1) == 0
}
