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

// Call has the arguments of one rank to a collective operation, without types: lengths are in elements of
// ElemSize bytes. Equal calls have the same schedule.
type Call struct {
	Operation   Operation
	Rank, Size  int
	Root        int  // 0 if the operation has none
	Count       int  // elements of the vector, or of this rank's block
	ElemSize    int  // bytes of an element
	Commutative bool // the operator's operands may be exchanged
	Predefined  bool // the operator is commutative and one of MPI's: exchanged operands change no bit
	// of Reduce, Allreduce, Scan and Exscan: Input may be the operator's right operand, because it is not
	// Output and the operator, a predefined one, does not overwrite it. It may differ from rank to rank
	OwnRight bool
	InOrder  bool // combine all operands of an element at once, in rank order
	// for Alltoall and Alltoallv: the blocks to send are those of Output; for ReduceScatter and
	// ReduceScatterBlock: Input begins where Output does
	InPlace bool
	// for Alltoallv of memory that is not contiguous: long messages go through the bounce buffers of package
	// rendezvous
	Bounced    bool
	Fabric     Fabric // carries messages, between hosts if there are several
	Processors int    // CPUs that the ranks of a host share, the same at all ranks; 0 if each has its own
	Mailbox    int    // length of the longest message that fits the ranks' mailboxes; 0 without mailboxes
	Pull       bool   // the ranks have mailboxes, and can read each other's memory
	// length up to which messages move faster through memory that both ends have mapped than by a system
	// call, or QuickAlways; the same at all ranks
	Quick     int
	Rewrite   Rewrite // the same at all ranks
	HugePages bool    // memory that others often read is moved to huge pages; the same at all ranks
	// lengths up to which this rank copies memory to the stage for one other rank to read: Stage if only this
	// rank does so, StageByBoth if both do at once. They may differ from rank to rank, so the rounds of a
	// schedule must not depend on them
	Stage, StageByBoth int
	Send, Recv         *Blocks
	Neighbors          *Neighbors
	Hosts              *Hosts // nil if all ranks share a host, or it is not known
}

// Rewrite is how long it takes a rank to write memory that another one has read since.
type Rewrite uint8

const (
	RewriteQuick Rewrite = iota // little longer than other memory
	RewriteSlow                 // up to four times as long as to read it by a system call
	RewriteVerySlow
)

// Repeats reports whether two calls on one communicator are equal. It compares only fields that can differ
// between such calls, and Size, so that a zero Call equals none. It does not compare pointers.
func (c *Call) Repeats(d *Call) bool {
	return c.Operation == d.Operation && c.Count == d.Count && c.Root == d.Root && c.ElemSize == d.ElemSize &&
		c.Mailbox == d.Mailbox && c.Size == d.Size && c.Commutative == d.Commutative &&
		c.OwnRight == d.OwnRight && c.Predefined == d.Predefined &&
		c.InOrder == d.InOrder && c.InPlace == d.InPlace && c.Bounced == d.Bounced && c.Pull == d.Pull &&
		c.Quick == d.Quick && c.Rewrite == d.Rewrite
}

// bytes returns the length of the vector, or of this rank's block.
func (c *Call) bytes() int { return c.Count * c.ElemSize }

// Bytes returns the length of the vector, or of this rank's block; if blocks differ, the total length of the
// blocks that the rank receives, or else sends.
func (c *Call) Bytes() int {
	for _, b := range [...]*Blocks{c.Recv, c.Send} {
		if b != nil && b.Counts != nil { // of neighbors, if the ranks have some
			return b.before(len(b.Counts))
		}
	}
	return c.bytes()
}

// SameBytes returns the length of the vector, or of each block, of a call that may go in pieces, which is the
// same at all ranks; 0 of other calls.
func (c *Call) SameBytes() int {
	if operations[c.Operation].pieces == 0 {
		return 0
	}
	return c.bytes()
}

// Signature returns a hash of the arguments that must be the same at all ranks. It is equal at all ranks of a
// correct program, and usually different if a length in bytes, or the root, differs.
func (c *Call) Signature() uint32 {
	h := uint64(c.Root) + 1
	switch c.Operation {
	case OpGatherv, OpScatterv, OpAlltoallv, OpNeighborAllgatherv, OpNeighborAlltoallv, OpNeighborAlltoall:
		// Lengths concern pairs of ranks; each message shows a difference.
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

// algorithm is an algorithm of an operation.
type algorithm struct {
	name string
	// reports whether it can execute the call; nil if it always can. The result is the same at all ranks
	fits  func(c *Call) bool
	build func(s *Schedule, c *Call)
}

// operation is an operation with its algorithms.
type operation struct {
	name       string
	algorithms []algorithm
	// the predicted time of each algorithm, in ns; nil for an algorithm that is chosen by other rules, or
	// never. Without any, the first algorithm is chosen
	costs    []func(c *Call) float64
	direct   int // the index of the direct algorithm (direct.go), plus one; 0 for none
	doubling int // likewise the doubling algorithm (doubling.go)
	pull     int // likewise the pulling algorithm (pull.go)
	pieces   int // likewise the algorithm in pieces (pieces.go)
	inOrder  int // likewise the algorithm that combines in rank order (inorder.go)
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
		op := &operations[o]
		op.direct = op.add(direct, Operation(o))
		op.doubling = op.add(doubling, Operation(o))
		op.pull = op.add(pulling, Operation(o))
		op.pieces = op.add(inPieces, Operation(o))
		op.inOrder = op.add(inOrder, Operation(o))
		op.addCosts(Operation(o))
	}
}

// add appends an operation's algorithm of a kind and returns its index, plus one; 0 if there is none.
func (op *operation) add(kind map[Operation]algorithm, o Operation) int {
	a, ok := kind[o]
	if !ok {
		return 0
	}
	op.algorithms = append(op.algorithms[:len(op.algorithms):len(op.algorithms)], a)
	return len(op.algorithms)
}

// Build builds the schedule of a call with the best algorithm.
func (c *Call) Build(s *Schedule) {
	s.Reset()
	c.append(s)
}

// append adds the steps of a call to a schedule.
func (c *Call) append(s *Schedule) {
	op := &operations[c.Operation]
	op.algorithms[op.best(c)].build(s, c)
}

// best returns the index of the best algorithm for a call.
func (op *operation) best(c *Call) int {
	switch {
	case op.doubling > 0 && suitsMailboxes(c) && c.doubles():
		return op.doubling - 1
	case op.direct > 0 && op.may(op.direct-1, c) && suitsMailboxes(c):
		return op.direct - 1
	case c.suitsDirectMessages():
		return op.direct - 1
	case c.suitsPieces():
		return op.pieces - 1
	case op.pull > 0 && op.may(op.pull-1, c) && suitsPull(c):
		return op.pull - 1
	case op.inOrder > 0 && c.InOrder:
		return op.inOrder - 1
	}
	best, _ := op.cheapest(c)
	return best
}

// may reports whether an algorithm can execute a call.
func (op *operation) may(i int, c *Call) bool {
	if c.InOrder && op.inOrder > 0 && i != op.direct-1 && i != op.pieces-1 && i != op.pull-1 &&
		i != op.inOrder-1 {
		return false
	}
	fits := op.algorithms[i].fits
	return fits == nil || fits(c)
}
