package coll

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/testlength"
)

// The suite forces every algorithm by name and compares what it does with the definition of the operation.

// matrixProduct multiplies 2 × 2 matrices of 32-bit words, which wrap: associative, and not commutative.
var matrixProduct = operator{16, func(dst, left, right []byte) {
	le := binary.LittleEndian
	row := func(b []byte) (uint32, uint32) { w := le.Uint64(b); return uint32(w), uint32(w >> 32) }
	l0, l1 := row(left)
	l2, l3 := row(left[8:])
	r0, r1 := row(right)
	r2, r3 := row(right[8:])
	le.PutUint64(dst, uint64(l0*r0+l1*r2)|uint64(l0*r1+l1*r3)<<32)
	le.PutUint64(dst[8:], uint64(l2*r0+l3*r2)|uint64(l2*r1+l3*r3)<<32)
}}

// combined is the plain reference of a reduction of ranks from one up to another: in rank order, one after
// another.
func combined(op operator, first, last, n int) []byte {
	total := random(first, n)
	for rank := first + 1; rank < last; rank++ {
		in := random(rank, n)
		for i := 0; i < n; i += op.elemSize {
			op.combine(total[i:i+op.elemSize], total[i:i+op.elemSize], in[i:i+op.elemSize])
		}
	}
	return total
}

// trial is a call of an operation: what each rank passes, and what it is to get.
type trial struct {
	operation   Operation
	size, root  int
	count       int
	commutative bool
	inPlace     bool
	inOrder     bool
	hosts       *Hosts
}

func (x trial) String() string {
	return fmt.Sprintf("%v of %d elements, root %d of %d, commutative %v, in place %v, hosts %v",
		x.operation, x.count, x.root, x.size,
		x.commutative, x.inPlace, x.hosts != nil)
}

const suiteElem = 16

func (x trial) op() operator {
	if x.commutative {
		return addition(suiteElem)
	}
	return matrixProduct
}

// blocks are blocks of lengths that differ.
func (x trial) blocks() *Blocks {
	n := make([]int, x.size)
	for rank := range n {
		n[rank] = (rank*7 + x.count) % (x.count + 2)
	}
	return &Blocks{Counts: n, ElemSize: suiteElem}
}

func (x trial) call(rank int) *Call {
	c := &Call{Operation: x.operation, Rank: rank, Size: x.size, Root: x.root, Count: x.count,
		ElemSize:    suiteElem,
		Commutative: x.commutative, Hosts: x.hosts, Pull: true,
		InOrder: x.inOrder}
	switch x.operation {
	case OpGatherv, OpScatterv:
		blocks := x.blocks()
		c.Count = blocks.Counts[rank]
		if rank == x.root {
			c.Send, c.Recv = blocks, blocks
		}
	case OpAllgatherv, OpReduceScatter:
		blocks := x.blocks()
		c.Count, c.Recv = blocks.Counts[rank], blocks
		c.InPlace = x.inPlace && x.operation == OpReduceScatter
	case OpAlltoallv:
		c.Send, c.Recv = x.exchanged(rank, false), x.exchanged(rank, true)
		c.InPlace = x.inPlace
	case OpAlltoall, OpReduceScatterBlock:
		c.InPlace = x.inPlace
	case OpAllreduce, OpScan, OpExscan:
		c.OwnRight = x.commutative && !x.inPlace
	case OpReduce:
		c.OwnRight = x.commutative && !(x.inPlace && rank == x.root) // matrixProduct stands for what overwrites its operands
	}
	return c
}

// exchanged are the blocks between a rank and the others in an Alltoallv.
func (x trial) exchanged(rank int, received bool) *Blocks {
	b := &Blocks{ElemSize: suiteElem}
	for peer := range x.size {
		from, to := rank, peer
		if received {
			from, to = peer, rank
		}
		if x.inPlace {
			from, to = min(from, to), max(from, to)
		}
		b.Counts = append(b.Counts, (from*5+to*3)%(x.count+2)*((from+to)%2))
	}
	return b
}

// input is what a rank gives: nil for nothing.
func (x trial) input(rank int) []byte {
	var all []byte
	n := x.count * suiteElem
	switch x.operation {
	case OpBarrier:
		return nil
	case OpBcast, OpScatter, OpScatterv:
		if rank != x.root {
			return nil
		}
		if x.operation == OpBcast {
			return random(rank, n)
		}
		blocks := x.blocks()
		for peer := range x.size {
			if x.operation == OpScatterv {
				n = blocks.bytes(peer)
			}
			all = append(all, hop(rank, peer, n)...)
		}
		return all
	case OpGatherv, OpAllgatherv:
		return random(rank, x.blocks().bytes(rank))
	case OpAlltoall:
		for peer := range x.size {
			all = append(all, hop(rank, peer, n)...)
		}
		return all
	case OpAlltoallv:
		for peer, k := range x.exchanged(rank, false).Counts {
			all = append(all, hop(rank, peer, k*suiteElem)...)
		}
		return all
	case OpReduceScatter:
		return random(rank, x.blocks().before(x.size))
	case OpReduceScatterBlock:
		return random(rank, n*x.size)
	}
	return random(rank, n)
}

// want is what a rank gets. once keeps what is the same for all ranks.
func (x trial) want(rank int, once *[]byte) []byte {
	n := x.count * suiteElem
	var all []byte
	switch x.operation {
	case OpBcast:
		return random(x.root, n)
	case OpScatter:
		return hop(x.root, rank, n)
	case OpScatterv:
		return hop(x.root, rank, x.blocks().bytes(rank))
	case OpGather, OpGatherv, OpAllgather, OpAllgatherv:
		if (x.operation == OpGather || x.operation == OpGatherv) && rank != x.root {
			return nil
		}
		for peer := 0; peer < x.size && *once == nil; peer++ {
			all = append(all, x.input(peer)...)
		}
		return keep(once, func() []byte { return all })
	case OpAlltoall:
		for peer := range x.size {
			all = append(all, hop(peer, rank, n)...)
		}
		return all
	case OpAlltoallv:
		for peer, k := range x.exchanged(rank, true).Counts {
			all = append(all, hop(peer, rank, k*suiteElem)...)
		}
		return all
	case OpReduce:
		if rank == x.root {
			return combined(x.op(), 0, x.size, n)
		}
	case OpAllreduce:
		return keep(once, func() []byte { return combined(x.op(), 0, x.size, n) })
	case OpReduceScatter:
		blocks := x.blocks()
		total := keep(once, func() []byte { return combined(x.op(), 0, x.size, blocks.before(x.size)) })
		return total[blocks.before(rank):blocks.before(rank+1)]
	case OpReduceScatterBlock:
		return keep(once, func() []byte { return combined(x.op(), 0, x.size, n*x.size) })[n*rank : n*(rank+1)]
	case OpScan:
		return combined(x.op(), 0, rank+1, n)
	case OpExscan:
		if rank > 0 {
			return combined(x.op(), 0, rank, n)
		}
	}
	return nil
}

func keep(once *[]byte, make func() []byte) []byte {
	if *once == nil {
		*once = make()
	}
	return *once
}

// sharedAt says where the shorter of input and output lies in the longer one, if the call is in place.
func (x trial) sharedAt(rank int) (offset int, ok bool) {
	n := x.count * suiteElem
	switch x.operation {
	case OpBcast:
		return 0, rank == x.root // the buffer is Output at the root too
	case OpGather, OpScatter:
		return n * rank, x.inPlace && rank == x.root
	case OpGatherv, OpScatterv:
		return x.blocks().before(rank), x.inPlace && rank == x.root
	case OpAllgather:
		return n * rank, x.inPlace
	case OpAllgatherv:
		return x.blocks().before(rank), x.inPlace
	case OpReduce:
		return 0, x.inPlace && rank == x.root
	case OpExscan:
		return 0, x.inPlace && rank > 0
	case OpBarrier:
		return 0, false
	}
	return 0, x.inPlace
}

// wants is what each rank gets.
func (x trial) wants() [][]byte {
	var once []byte
	want := make([][]byte, x.size)
	for rank := range want {
		want[rank] = x.want(rank, &once)
	}
	return want
}

func (x trial) run(t *testing.T, a *algorithm, want [][]byte) {
	t.Helper()
	j := job{
		size:    x.size,
		op:      x.op(),
		build:   func(s *Schedule, rank int) { a.build(s, x.call(rank)) },
		input:   x.input,
		output:  func(rank int) int { return len(want[rank]) },
		inPlace: x.sharedAt,
	}
	outputs, err := j.run(uint64(x.size*1000 + x.count + x.root))
	if err != nil {
		require.NoError(t, err, "%s: %v", a.name, x)
	}
	for rank, got := range outputs {
		if !bytes.Equal(got, want[rank]) {
			require.Failf(t, "wrong output", "%s: %v: rank %d", a.name, x, rank)
		}
	}
}

// layoutsOfHosts are no hosts, hosts of ranks that follow one another, and hosts whose ranks alternate.
func layoutsOfHosts(size int) []*Hosts {
	blocks, alternating := make([]int, size), make([]int, size)
	for rank := range size {
		blocks[rank], alternating[rank] = rank/3, rank%2
	}
	return []*Hosts{nil, NewHosts(blocks), NewHosts(alternating)}
}

func TestEveryAlgorithmForcedByName(t *testing.T) {
	for _, o := range Operations() {
		if o >= OpNeighborAllgather {
			continue // see TestNeighbors
		}
		all := trials(o)
		wants := make([]func() [][]byte, len(all)) // the same by every algorithm
		for i, x := range all {
			wants[i] = sync.OnceValue(x.wants)
		}
		for i := range operations[o].algorithms {
			a := &operations[o].algorithms[i]
			t.Run(o.String()+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				ran := 0
				for i, x := range all {
					if a.fits != nil && !a.fits(x.call(0)) {
						continue
					}
					x.run(t, a, wants[i]())
					ran++
					if a.name == directName || a.name == piecesName || a.name == pullName {
						x.inOrder = true
						x.run(t, a, wants[i]())
					}
				}
				require.Positive(t, ran)
			})
		}
	}
}

func trials(o Operation) (all []trial) {
	for _, size := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31} {
		counts := []int{0, 1, size - 1, size + 1, 97}
		if size == 3 || size == 4 {
			large := 320 << 10 / suiteElem // more than hugeBcastMin, and several segments
			if o != OpBcast && o != OpReduce && o != OpAllreduce && o != OpScan && o != OpExscan {
				large /= size // the blocks of all ranks together
			}
			counts = append(counts, large)
		}
		if size == 2 && (o == OpReduce || o == OpBcast) {
			counts = append(counts, pullChunk/suiteElem, 2*pullChunk/suiteElem+5, 2*pullChunk/suiteElem+6,
				6*pullChunk/suiteElem+7)
		}
		if size == 2 && (o == OpAllreduce || o == OpAllgather || o == OpAlltoall) {
			counts = append(counts, PieceMin/suiteElem, PieceMin/suiteElem+1, 9*PieceMin/suiteElem+5)
		}
		if size == 31 { // takes as long as all others together
			counts = []int{1, size + 1}
		}
		if o == OpBarrier {
			counts = []int{0}
		}
		roots := []int{0}
		if o == OpBcast || o == OpReduce || o == OpGather || o == OpGatherv || o == OpScatter ||
			o == OpScatterv {
			roots = slices.Compact([]int{0, size / 2, size - 1})
			if size == 31 {
				roots = roots[1:2]
			}
		}
		for turn, count := range counts {
			for _, root := range roots {
				for h, hosts := range layoutsOfHosts(size) {
					x := trial{operation: o, size: size, root: root, count: count,
						inPlace: (turn+h+root)%2 == 0, hosts: hosts}
					if h > 0 && (hosts == nil || count > 1000 || h != 1+(turn+root)%2 && !testlength.Whole()) {
						continue
					}
					all = append(all, x)
					if o >= OpReduce && (count < 1000 || size == 2) {
						x.commutative, x.inPlace = true, !x.inPlace
						all = append(all, x)
					}
				}
			}
		}
	}
	return all
}

// Choices force what they name and refuse what does not exist.
func TestChoices(t *testing.T) {
	ch, err := ParseSelection("allreduce:ring, Bcast:k-nomial,explain")
	require.NoError(t, err)
	require.True(t, ch.Explain())
	var s Schedule
	for _, c := range []struct {
		call   Call
		name   string
		forced bool
	}{
		{Call{Operation: OpAllreduce, Size: 4, Count: 1, ElemSize: 8, Commutative: true}, "ring", true},
		{Call{Operation: OpAllreduce, Size: 4, Count: 1, ElemSize: 8}, "direct", false},
		{Call{Operation: OpBcast, Size: 4, Count: 1, ElemSize: 8}, "k-nomial", true},
		{Call{Operation: OpReduce, Size: 4, Count: 1, ElemSize: 8}, "direct", false},
	} {
		name, reason := ch.Build(&s, &c.call)
		require.Equal(t, c.name, name)
		require.Equal(t, c.forced, reason == Forced)
	}
	for text, says := range map[string]string{
		"allreduce:rign":  "recursive-doubling, rabenseifner, ring",
		"alreduce:ring":   "no collective",
		"allreduce":       "no algorithm",
		"barrier:linear,": "",
	} {
		if _, err := ParseSelection(text); says != "" {
			require.ErrorContains(t, err, says)
		} else {
			require.NoError(t, err)
		}
	}
}

// Neighbors in a torus get what is sent towards them, in dimensions of one and two ranks too, where both
// neighbors are the same rank.
func TestNeighbors(t *testing.T) {
	for _, dims := range [][2]int{{1, 1}, {1, 2}, {2, 2}, {3, 2}, {4, 3}} {
		size := dims[0] * dims[1]
		neighbors := func(rank int) []int {
			x, y := rank/dims[1], rank%dims[1]
			at := func(x, y int) int { return (x+dims[0])%dims[0]*dims[1] + (y+dims[1])%dims[1] }
			return []int{at(x-1, y), at(x+1, y), at(x, y-1), at(x, y+1)}
		}
		const n = 5
		j := job{
			size: size,
			build: func(s *Schedule, rank int) {
				list := &Neighbors{Sources: neighbors(rank), Destinations: neighbors(rank), Paired: true}
				(&Call{Operation: OpNeighborAlltoall, Rank: rank, Size: size, Neighbors: list,
					Send: Even(n), Recv: Even(n)}).append(s)
			},
			input: func(rank int) (b []byte) {
				for i := range 4 {
					b = append(b, hop(rank, i, n)...)
				}
				return b
			},
			output: constant(4 * n),
		}
		expect(t, j, func(rank int) (b []byte) {
			for i, peer := range neighbors(rank) {
				b = append(b, hop(peer, i^1, n)...) // what goes down comes from above
			}
			return b
		}, "torus of %d by %d", dims[0], dims[1])
	}
	// A ring of ranks that know only where data comes from and goes to, and one without neighbors.
	const size = 4
	j := job{
		size: size,
		build: func(s *Schedule, rank int) {
			list := &Neighbors{Sources: []int{(rank + 1) % 3, NoNeighbor},
				Destinations: []int{(rank + 2) % 3}}
			if rank == 3 {
				list = &Neighbors{}
			}
			(&Call{Operation: OpNeighborAllgather, Rank: rank, Size: size, Count: 4, ElemSize: 2,
				Neighbors: list, Recv: Even(8)}).append(s)
		},
		input:  func(rank int) []byte { return pattern(rank, 8) },
		output: func(rank int) int { return []int{16, 16, 16, 0}[rank] },
	}
	expect(t, j, func(rank int) []byte {
		if rank == 3 {
			return nil
		}
		return append(pattern((rank+1)%3, 8), bytes.Repeat([]byte{untouched}, 8)...)
	}, "graph")
}

// With 1,000 ranks every algorithm gives the right result, and the rounds and bytes of the ones that are
// chosen grow as they should.
func TestAThousandRanks(t *testing.T) {
	const size = 1000
	rounds := map[Operation]int{ // that a rank takes at most; 10 is the logarithm of the size
		OpBarrier: 10, OpBcast: 2, OpGather: 2, OpScatter: 2, OpAllgather: 10, OpAlltoall: 11, OpReduce: 3,
		OpAllreduce:          11,
		OpReduceScatterBlock: 12, OpScan: 10, OpExscan: 10,
	}
	received := map[Operation]int{ // bytes at most
		OpBarrier: 0, OpBcast: 16, OpGather: 999 * 16, OpScatter: 500 * 16, OpAllgather: 999 * 16,
		OpAlltoall: 5000 * 16,
		OpReduce:   10 * 16, OpAllreduce: 11 * 16, OpReduceScatterBlock: 3000 * 16, OpScan: 10 * 16,
		OpExscan: 10 * 16,
	}
	for o, maxRounds := range rounds {
		t.Run(o.String(), func(t *testing.T) {
			t.Parallel()
			x := trial{operation: o, size: size, root: 0, count: 1, commutative: true}
			if o == OpBarrier {
				x.count = 0
			}
			i, _ := operations[o].cheapest(x.call(0))
			a := &operations[o].algorithms[i]
			if o != OpAlltoall && o != OpReduceScatterBlock || !testing.Short() {
				x.run(t, a, x.wants())
			}
			for rank := range size {
				var s Schedule
				a.build(&s, x.call(rank))
				bytes := 0
				for _, step := range s.steps {
					if step.Kind == Recv {
						bytes += step.Dst.Len
					}
				}
				if s.Rounds() > maxRounds || bytes > received[o] {
					require.Failf(t, "costs too much",
						"%s, rank %d: %d rounds, at most %d; %d bytes, at most %d", a.name, rank,
						s.Rounds(),
						maxRounds, bytes, received[o])
				}
			}
		})
	}
}
