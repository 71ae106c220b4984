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
	// of Reduce: Input may be the right operand of the operator, as it is not Output, and is not overwritten.
	// It may differ from rank to rank, as may Stage
	OwnRight bool
	InOrder  bool // all operands of an element are to be combined at once, in rank order
	InPlace  bool // of Alltoall and Alltoallv: the blocks to send are those of Output; of
	// ReduceScatter and ReduceScatterBlock: Input begins where Output does
	Staged     bool   // of Alltoallv: long messages go through memory of their own
	Fabric     Fabric // that carries messages, between hosts if there are several
	Processors int    // of the host that the ranks share; 0 if each has one. All ranks say the same
	Mailbox    int    // bytes of a message that the ranks' mailboxes take; 0 where they have none
	Pull       bool   // the ranks have mailboxes, and read each other's memory
	// up to how many bytes this rank copies memory for one other to read, alone and where both do so at once.
	// They may differ from rank to rank, so no rounds depend on them
	Stage, StageByBoth int
	Send, Recv         *Blocks
	Neighbors          *Neighbors
	Hosts              *Hosts // nil where all ranks share a host, or it is not known
}

// Repeats reports whether two calls on one communicator are equal. Of what such calls have alike, it compares
// the size, which an empty Call has not; what pointers lead to it does not compare.
func (c *Call) Repeats(d *Call) bool {
	return c.Operation == d.Operation && c.Count == d.Count && c.Root == d.Root && c.ElemSize == d.ElemSize &&
		c.Mailbox == d.Mailbox && c.Size == d.Size && c.Commutative == d.Commutative &&
		c.OwnRight == d.OwnRight &&
		c.InOrder == d.InOrder && c.InPlace == d.InPlace && c.Staged == d.Staged && c.Pull == d.Pull
}

// bytes is the length of the vector, or of this rank's block.
func (c *Call) bytes() int { return c.Count * c.ElemSize }

// Bytes is the length of the vector, or of this rank's block; where blocks differ, that of all blocks that
// the rank receives, or else sends.
func (c *Call) Bytes() int {
	for _, b := range [...]*Blocks{c.Recv, c.Send} {
		if b != nil && b.Counts != nil { // of neighbors, if the ranks have some
			return b.before(len(b.Counts))
		}
	}
	return c.bytes()
}

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

// operation is an operation with its algorithms.
type operation struct {
	name       string
	algorithms []algorithm
	// the predicted time of each algorithm, in ns; nil for one that is chosen by other rules, or not at all.
	// Without any the first algorithm is chosen
	costs   []func(c *Call) float64
	direct  int // the index of the direct algorithm, plus one; 0 for none
	pull    int // of the pulling one, likewise
	inOrder int // of the one that is in order, likewise
}

// operations is filled in by init because a composed algorithm builds other operations out of it.
var operations [operationCount]operation

func init() {
	operations = [operationCount]operation{
		OpBarrier:            {name: "Barrier", algorithms: barrierAlgorithms},
		OpBcast:              {name: "Bcast", algorithms: bcastAlgorithms},
		OpGather:             {name: "Gather", algorithms: gatherAlgorithms},
		OpGatherv:            {name: "Gatherv", algorithms: gathervAlgorithms},
		OpScatter:            {name: "Scatter", algorithms: scatterAlgorithms},
		OpScatterv:           {name: "Scatterv", algorithms: scattervAlgorithms},
		OpAllgather:          {name: "Allgather", algorithms: allgatherAlgorithms},
		OpAllgatherv:         {name: "Allgatherv", algorithms: allgathervAlgorithms},
		OpAlltoall:           {name: "Alltoall", algorithms: alltoallAlgorithms},
		OpAlltoallv:          {name: "Alltoallv", algorithms: alltoallvAlgorithms},
		OpReduce:             {name: "Reduce", algorithms: reduceAlgorithms},
		OpAllreduce:          {name: "Allreduce", algorithms: allreduceAlgorithms},
		OpReduceScatter:      {name: "ReduceScatter", algorithms: reduceScatterAlgorithms},
		OpReduceScatterBlock: {name: "ReduceScatterBlock", algorithms: reduceScatterAlgorithms},
		OpScan:               {name: "Scan", algorithms: scanAlgorithms},
		OpExscan:             {name: "Exscan", algorithms: exscanAlgorithms},
		OpNeighborAllgather:  {name: "NeighborAllgather", algorithms: neighborAllgatherAlgorithms},
		OpNeighborAllgatherv: {name: "NeighborAllgatherv", algorithms: neighborAllgatherAlgorithms},
		OpNeighborAlltoall:   {name: "NeighborAlltoall", algorithms: neighborAlltoallAlgorithms},
		OpNeighborAlltoallv:  {name: "NeighborAlltoallv", algorithms: neighborAlltoallAlgorithms},
	}
	for o := range operations {
		operations[o].addDirect(Operation(o))
		operations[o].addPulling(Operation(o))
		operations[o].addInOrder(Operation(o))
		operations[o].addCosts(Operation(o))
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
	case op.direct > 0 && op.may(op.direct-1, c) && suitsDirect(c):
		return op.direct - 1
	case op.pull > 0 && op.may(op.pull-1, c) && suitsPull(c):
		return op.pull - 1
	case op.inOrder > 0 && c.InOrder:
		return op.inOrder - 1
	}
	best, _ := op.cheapest(c)
	return best
}

// may reports whether an algorithm can carry out a call.
func (op *operation) may(i int, c *Call) bool {
	if c.InOrder && op.inOrder > 0 && i != op.direct-1 && i != op.pull-1 && i != op.inOrder-1 {
		return false
	}
	fits := op.algorithms[i].fits
	return fits == nil || fits(c)
}
