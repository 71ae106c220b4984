package mpi

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// The functions below check the arguments of collectives, and store them in a collectiveCall.

// begin starts the description of a call on elements of type T, in a zero collectiveCall.
func begin[T any](a *collectiveCall, c *Comm, o coll.Operation) {
	a.comm, a.call.Operation = c, o
	if a.err = c.check(); a.err != nil {
		return
	}
	if !lastKnown[T]() {
		a.err = checkElement[T]()
	}
	a.element = elementOf[T](c)
	a.call.Rank, a.call.Size, a.call.ElemSize = c.rank, c.size, sizeOf[T]()
}

// fail records the first mistake in a call.
func (a *collectiveCall) fail(kind error, format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...))
	}
}

// rooted sets the root, and reports whether it is this rank.
func (a *collectiveCall) rooted(root int) bool {
	if a.err == nil && uint(root) >= uint(a.call.Size) {
		a.fail(ErrRoot, "%d; %s", root, a.comm.rankRange())
	}
	a.call.Root = root
	return root == a.call.Rank
}

// by sets the operator.
func by[T any](a *collectiveCall, op Op[T]) {
	if op.operator == nil {
		a.fail(ErrOp, "an Op comes from Sum, NewOp and the like")
		return
	}
	a.op, a.call.Commutative, a.call.Predefined = op.operator, op.operator.Commutative, op.operator.Predefined
	a.call.InOrder = a.err == nil && a.comm.reproducible && !op.operator.Associative
}

// reduced checks the buffers of a reduction, whose operator is set, from a vector to a vector, and sets them.
func reduced[T any](a *collectiveCall, in, out []T) {
	if isInPlace(in) {
		in = out
	}
	noInPlace(a, "out", out)
	if len(in) != len(out) {
		a.fail(ErrCount, "%d elements in, room for %d out", len(in), len(out))
	}
	a.call.Count = len(in)
	buffers(a, in, out)
	a.refuseOverlap()
	a.call.OwnRight = a.call.Predefined && !sameBeginning(a.in, a.out)
}

// buffers sets the buffers of a call.
func buffers[T any](a *collectiveCall, in, out []T) {
	if a.err == nil {
		a.in, a.out = bytesIn(in), bytesIn(out)
	}
}

// onlyIn sets the buffer of a call at a rank that receives nothing.
func onlyIn[T any](a *collectiveCall, in []T) {
	noInPlace(a, "in", in)
	a.call.Count = len(in)
	buffers(a, in, nil)
}

// onlyOut sets the buffer of a call at a rank that sends nothing.
func onlyOut[T any](a *collectiveCall, out []T) {
	noInPlace(a, "out", out)
	a.call.Count = len(out)
	buffers(a, nil, out)
}

// gathered sets the buffers of a call that gathers blocks in out; own is this rank's block.
func gathered[T any](a *collectiveCall, in, own, out []T) {
	noInPlace(a, "out", out)
	if isInPlace(in) {
		in = own
	} else if len(in) != len(own) {
		a.wrongBlock("out", len(out), "in", len(in), len(own), a.call.Recv != nil)
	}
	a.call.Count = len(own)
	buffers(a, in, out)
}

// wrongBlock fails for a block that is not of the length of this rank's part of all blocks.
func (a *collectiveCall) wrongBlock(all string, has int, block string, length, part int, counted bool) {
	if counted {
		a.fail(ErrCount, "%s has %d elements; the counts say %d for this rank", block, length, part)
		return
	}
	a.fail(ErrCount, "%s has %d elements; %d ranks with %d each, as %s has here, need %d", all, has,
		a.call.Size, length, block, a.call.Size*length)
}

// scattered sets the buffers of a call that scatters blocks of in; own is this rank's block.
func scattered[T any](a *collectiveCall, in, own, out []T) {
	noInPlace(a, "in", in)
	if isInPlace(out) {
		out = own
	} else if len(out) != len(own) {
		a.wrongBlock("in", len(in), "out", len(out), len(own), a.call.Send != nil)
	}
	a.call.Count = len(own)
	buffers(a, in, out)
}

// bytesIn returns the memory of a slice whose type has been checked.
func bytesIn[T any](buf []T) []byte {
	if len(buf) == 0 {
		return nil
	}
	return memory(buf)
}

// refuseOverlap refuses an input that overlaps the output: the result would depend on the algorithm. If both
// begin at the same address, the call is in place.
func (a *collectiveCall) refuseOverlap() {
	if !sameBeginning(a.in, a.out) && !disjoint(a.in, a.out) {
		a.fail(ErrBuffer, "input and output overlap")
	}
}

func sameBeginning(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// disjoint reports whether two pieces of memory do not overlap.
func disjoint(a, b []byte) bool {
	i, o := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return i+uintptr(len(a)) <= o || o+uintptr(len(b)) <= i
}

// inPlace marks the slice that InPlace returns: its data pointer is this variable's address.
var inPlace [16]byte

// InPlace stands for MPI_IN_PLACE. Passed as in, it means that the input is in out. Passed as out of Scatter,
// it means that the root's block stays in in. In a reduction, passing one slice as in and out means the same.
func InPlace[T any]() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&inPlace)), 0)
}

func isInPlace[T any](buf []T) bool {
	return unsafe.Pointer(unsafe.SliceData(buf)) == unsafe.Pointer(&inPlace)
}

// noInPlace refuses InPlace where it has no meaning.
func noInPlace[T any](a *collectiveCall, what string, buf []T) {
	if isInPlace(buf) {
		a.fail(ErrBuffer, "InPlace has no meaning as %s at rank %d", what, a.call.Rank)
	}
}

// whole returns the number of elements of each of n equal blocks.
func whole[T any](a *collectiveCall, what string, buf []T) int {
	n := max(a.call.Size, 1)
	if len(buf)%n != 0 {
		a.fail(ErrCount, "the %d elements of %s are no multiple of %d ranks", len(buf), what, n)
	}
	return len(buf) / n
}

// ownBlock returns this rank's block of n equal ones.
func ownBlock[T any](a *collectiveCall, what string, buf []T) []T {
	n := whole(a, what, buf)
	return buf[min(a.call.Rank*n, len(buf)):][:n]
}

// layout makes blocks of counts and displacements; without displs blocks follow one another.
func (a *collectiveCall) layout(n int, what string, counts, displs []int, room int) *coll.Blocks {
	b := &coll.Blocks{Counts: counts, Displs: displs, ElemSize: a.call.ElemSize}
	if len(counts) != n || displs != nil && len(displs) != n {
		a.fail(ErrCount, "%d counts and %d displacements for %s, which has %d blocks: one of each is needed "+
			"for a block, or no displacements", len(counts), len(displs), what, n)
		return b
	}
	at := 0
	for i, count := range counts {
		if displs != nil {
			at = displs[i]
		}
		switch {
		case count < 0:
			a.fail(ErrCount, "block %d of %s has a count of %d", i, what, count)
			return b
		case at < 0 || count > math.MaxInt-at || at+count > room:
			a.fail(ErrCount, "block %d of %s is %d elements from element %d on, and %[2]s has %[5]d", i, what,
				count, at, room)
			return b
		}
		at += count
	}
	return b
}

// part returns the elements of a rank's block.
func part[T any](a *collectiveCall, b *coll.Blocks, buf []T, rank int) []T {
	if a.err != nil {
		return nil
	}
	at := 0
	if b.Displs != nil {
		at = b.Displs[rank]
	} else {
		for _, n := range b.Counts[:rank] {
			at += n
		}
	}
	return buf[at:][:b.Counts[rank]]
}
