package coll

import "fmt"

// Operation is a collective operation of MPI.
type Operation uint8

// The operations of MPI 4.1, chapter 6, and those on the neighbors of a topology (section 8.6).
const (
	OpBarrier Operation = iota
	OpBcast
	OpGather
	OpGatherv
	OpScatter
	OpScatterv
	OpAllgather
	OpAllgatherv
	OpAlltoall
	OpAlltoallv
	OpReduce
	OpAllreduce
	OpReduceScatter
	OpReduceScatterBlock
	OpScan
	OpExscan
	OpNeighborAllgather
	OpNeighborAllgatherv
	OpNeighborAlltoall
	OpNeighborAlltoallv
	operationCount
)

// String is the operation's name in package mpi.
func (o Operation) String() string {
	if o < operationCount {
		return operations[o].name
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Call is what one rank passes to a collective operation, without types: lengths are in elements of ElemSize
// bytes. Two calls that are equal have the same schedule.
type Call struct {
	Operation   Operation
	Rank, Size  int
	Root        int  // 0 where the operation has none
	Count       int  // elements of the vector, or of this rank's block
	ElemSize    int  // bytes of an element
	Commutative bool // the operator's operands may be exchanged
	InOrder     bool // all operands of an element are to be combined at once, in rank order
	InPlace     bool // of Alltoall and Alltoallv: the blocks to send are those of Output
	Crowded     bool // the ranks share a host, and are more than its processors; all ranks say the same
	Mailbox     int  // bytes of a message that the ranks' mailboxes take; 0 where they have none
	Pull        bool // the ranks have mailboxes, and read each other's memory
	Send, Recv  *Blocks
	Neighbors   *Neighbors
	Hosts       *Hosts // nil where all ranks share a host, or it is not known
}

// bytes is the length of the vector, or of this rank's block.
func (c *Call) bytes() int { return c.Count * c.ElemSize }

// Signature condenses what all ranks have to pass alike, so that a difference can be found. It is the same at
// all ranks of a correct program, and most often another where a length, the root or the size of the elements
// differs.
func (c *Call) Signature() uint32 {
	h := uint64(c.Root) + 1
	switch c.Operation {
	case OpGatherv, OpScatterv, OpAlltoallv, OpNeighborAllgatherv, OpNeighborAlltoallv, OpNeighborAlltoall:
		// Lengths are matters of two ranks, which each message shows.
	case OpAllgatherv, OpReduceScatter:
		h += uint64(c.Recv.before(c.Size)) << 8
	default:
		h += uint64(c.bytes()) << 8
	}
	if c.Commutative {
		h += 1 << 62
	}
	h *= 0x9E3779B97F4A7C15
	return uint32(h >> 32)
}

// algorithm is one way to carry out an operation.
type algorithm struct {
	name string
	// whether it can carry out the call; nil if it always can. All ranks find the same
	fits  func(c *Call) bool
	build func(s *Schedule, c *Call)
}

// operation is an operation with its algorithms. choose gives the index of the one that suits a call best; it
// fits.
type operation struct {
	name       string
	algorithms []algorithm
	choose     func(c *Call) int
	direct     int // the index of the direct algorithm, plus one; 0 for none
	pull       int // of the pulling one, likewise
	inOrder    int // of the one that is in order, likewise
}

// only is the choice of an operation with one algorithm.
func only(*Call) int { return 0 }

// operations is filled in by init because a composed algorithm builds other operations out of it.
var operations [operationCount]operation

func init() {
	operations = [operationCount]operation{
		OpBarrier:            {"Barrier", barrierAlgorithms, chooseBarrier, 0, 0, 0},
		OpBcast:              {"Bcast", bcastAlgorithms, chooseBcast, 0, 0, 0},
		OpGather:             {"Gather", gatherAlgorithms, chooseGather, 0, 0, 0},
		OpGatherv:            {"Gatherv", gathervAlgorithms, only, 0, 0, 0},
		OpScatter:            {"Scatter", scatterAlgorithms, chooseGather, 0, 0, 0},
		OpScatterv:           {"Scatterv", scattervAlgorithms, only, 0, 0, 0},
		OpAllgather:          {"Allgather", allgatherAlgorithms, chooseAllgather, 0, 0, 0},
		OpAllgatherv:         {"Allgatherv", allgathervAlgorithms, chooseAllgatherv, 0, 0, 0},
		OpAlltoall:           {"Alltoall", alltoallAlgorithms, chooseAlltoall, 0, 0, 0},
		OpAlltoallv:          {"Alltoallv", alltoallvAlgorithms, only, 0, 0, 0},
		OpReduce:             {"Reduce", reduceAlgorithms, chooseReduce, 0, 0, 0},
		OpAllreduce:          {"Allreduce", allreduceAlgorithms, chooseAllreduce, 0, 0, 0},
		OpReduceScatter:      {"ReduceScatter", reduceScatterAlgorithms, chooseReduceScatter, 0, 0, 0},
		OpReduceScatterBlock: {"ReduceScatterBlock", reduceScatterAlgorithms, chooseReduceScatter, 0, 0, 0},
		OpScan:               {"Scan", scanAlgorithms, only, 0, 0, 0},
		OpExscan:             {"Exscan", exscanAlgorithms, only, 0, 0, 0},
		OpNeighborAllgather:  {"NeighborAllgather", neighborAllgatherAlgorithms, only, 0, 0, 0},
		OpNeighborAllgatherv: {"NeighborAllgatherv", neighborAllgatherAlgorithms, only, 0, 0, 0},
		OpNeighborAlltoall:   {"NeighborAlltoall", neighborAlltoallAlgorithms, only, 0, 0, 0},
		OpNeighborAlltoallv:  {"NeighborAlltoallv", neighborAlltoallAlgorithms, only, 0, 0, 0},
	}
	for o := range operations {
		operations[o].addDirect(Operation(o))
		operations[o].addPulling(Operation(o))
		operations[o].addInOrder(Operation(o))
	}
}

// Build writes the schedule of a call by the algorithm that suits it best.
func (c *Call) Build(s *Schedule) {
	s.Reset()
	c.append(s)
}

// append adds the steps of a call to a schedule.
func (c *Call) append(s *Schedule) {
	op := &operations[c.Operation]
	op.algorithms[op.suits(c)].build(s, c)
}

// suits is the index of the algorithm that suits a call best.
func (op *operation) suits(c *Call) int {
	switch {
	case op.direct > 0 && suitsDirect(c):
		return op.direct - 1
	case op.pull > 0 && suitsPull(c):
		return op.pull - 1
	case op.inOrder > 0 && c.InOrder:
		return op.inOrder - 1
	}
	return op.choose(c)
}

// may tells whether an algorithm can carry out a call.
func (op *operation) may(i int, c *Call) bool {
	if c.InOrder && op.inOrder > 0 && i != op.direct-1 && i != op.pull-1 && i != op.inOrder-1 {
		return false
	}
	fits := op.algorithms[i].fits
	return fits == nil || fits(c)
}

// The three below serve callers that need no more of an operation.

// Bcast brings so many bytes of Output at the root to Output at every rank. Input is not used.
func Bcast(s *Schedule, rank, size, root, bytes int) {
	c := Call{Operation: OpBcast, Rank: rank, Size: size, Root: root, Count: bytes, ElemSize: 1}
	c.Build(s)
}

// Allreduce combines count elements of Input at all ranks into Output at all ranks. Input may be Output.
func Allreduce(s *Schedule, rank, size, count, elemSize int, commutative bool) {
	c := Call{Operation: OpAllreduce, Rank: rank, Size: size, Count: count, ElemSize: elemSize,
		Commutative: commutative}
	c.Build(s)
}

// Allgather brings a block of Input from every rank to Output at every rank, in rank order. Input may be the
// rank's own block of Output.
func Allgather(s *Schedule, rank, size, blockBytes int) {
	c := Call{Operation: OpAllgather, Rank: rank, Size: size, Count: blockBytes, ElemSize: 1}
	c.Build(s)
}
