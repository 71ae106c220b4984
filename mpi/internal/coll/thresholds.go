package coll

// Bounds of algorithms. For the choice between algorithms, see cost.go, direct.go and pull.go.
const (
	// alltoallWindow exchanges of an Alltoall go in one round of the scattered algorithm.
	alltoallWindow = 8
	// An Alltoallv with Call.Bounced makes one exchange a round if its longest block exceeds bouncedMax.
	bouncedMax = 4 << 10
	// emptyBlocksMax is the largest number of ranks between which empty blocks of an Alltoallv are sent.
	emptyBlocksMax = 16
)

func powerOfTwo(n int) bool {
	return n&(n-1) == 0
}
