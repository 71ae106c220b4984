package mpi

import "github.com/weft-mpi/weft/mpi/internal/coll"

// ReduceScatter combines in from all ranks, element by element, and stores each rank's block of the result in
// out (MPI 4.1, 6.10.2). The block of rank i has counts[i] elements; blocks follow one another. All ranks
// pass the same counts, whose sum is the length of in. weft uses counts only during the call. in may be
// InPlace, at all ranks: out then holds the input, and its beginning receives the block.
func ReduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T]) error {
	return run(reduceScatter(c, in, out, counts, op))
}

// IreduceScatter begins a ReduceScatter. Until the request is complete, out must not be accessed and in must
// not be changed.
func IreduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T]) (Request, error) {
	return startCall(reduceScatter(c, in, out, counts, op))
}

// ReduceScatterInit sets up a ReduceScatter that can be started repeatedly.
func ReduceScatterInit[T any](c *Comm, in, out []T, counts []int, op Op[T]) (*Persistent, error) {
	return setUp(reduceScatter(c, in, out, counts, op))
}

func reduceScatter[T any](c *Comm, in, out []T, counts []int, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpReduceScatter)
	by(&a, op)
	noInPlace(&a, "out", out)
	if isInPlace(in) {
		in = out
	}
	a.call.Recv = a.layout(a.call.Size, "in", counts, nil, len(in))
	total := 0
	for _, n := range counts {
		total += n
	}
	if a.err == nil && (total != len(in) || len(out) < counts[a.call.Rank]) {
		a.fail(ErrCount, "%d elements in and room for %d out, where the counts are %d in all and %d here",
			len(in), len(out), total, counts[a.call.Rank])
	}
	buffers(&a, in, out)
	a.refuseOverlap()
	a.call.InPlace = sameBeginning(a.in, a.out)
	return a
}

// ReduceScatterBlock is ReduceScatter with blocks of one length, that of out (MPI 4.1, 6.10.1). in is Size
// times as long. in may be InPlace, at all ranks: out then holds the input, and its beginning receives the
// block.
func ReduceScatterBlock[T any](c *Comm, in, out []T, op Op[T]) error {
	return run(reduceScatterBlock(c, in, out, op))
}

// IreduceScatterBlock begins a ReduceScatterBlock. Until the request is complete, out must not be accessed
// and in must not be changed.
func IreduceScatterBlock[T any](c *Comm, in, out []T, op Op[T]) (Request, error) {
	return startCall(reduceScatterBlock(c, in, out, op))
}

// ReduceScatterBlockInit sets up a ReduceScatterBlock that can be started repeatedly.
func ReduceScatterBlockInit[T any](c *Comm, in, out []T, op Op[T]) (*Persistent, error) {
	return setUp(reduceScatterBlock(c, in, out, op))
}

func reduceScatterBlock[T any](c *Comm, in, out []T, op Op[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpReduceScatterBlock)
	by(&a, op)
	noInPlace(&a, "out", out)
	block := len(out)
	if isInPlace(in) {
		in = out
		block = whole(&a, "out", out)
	} else if a.err == nil && len(in) != a.call.Size*block {
		a.fail(ErrCount, "%d elements in, where the blocks of %d ranks are %d", len(in), a.call.Size,
			a.call.Size*block)
	}
	a.call.Count = block
	buffers(&a, in, out)
	a.refuseOverlap()
	a.call.InPlace = sameBeginning(a.in, a.out)
	return a
}
