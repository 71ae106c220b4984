package mpi

import (
	"fmt"
	"reflect"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/value"
)

// BcastValue returns root's value at every rank. The values that other ranks pass are not used. All ranks use
// the same type, one that SendValue can send; a rank that uses another gets ErrType.
func BcastValue[T any](c *Comm, v T, root int) (T, error) {
	err := c.checkRoot(root)
	if err == nil {
		err = bcastValue(c, &v, root)
	}
	return v, c.failColl("BcastValue", err)
}

func bcastValue[T any](c *Comm, v *T, root int) error {
	x := c.newValueCall(root, value.Of[T]())
	var b []byte
	h := value.Header{}
	if c.rank == root {
		b, h = value.Encoded(v)
	}
	if err := x.run(coll.Call{Operation: coll.OpBcast, Root: root, Count: len(h), ElemSize: 8}, nil,
		wordBytes(h[:])); err != nil {
		return err
	}
	if c.rank != root {
		total, err := lengths([]value.Header{h}, nil)
		if err != nil {
			return err
		}
		b = make([]byte, total)
	}
	if err := x.run(coll.Call{Operation: coll.OpBcast, Root: root, Count: len(b), ElemSize: 1}, nil,
		b); err != nil {
		return err
	}
	if c.rank == root {
		return h.Failure(root, b)
	}
	return value.Received(h, root, b, v)
}

// GatherValues returns the values of all ranks, in rank order, at root. It returns nil at the others.
func GatherValues[T any](c *Comm, v T, root int) ([]T, error) {
	err := c.checkRoot(root)
	var all []T
	if err == nil {
		x := c.newValueCall(root, value.Of[T]())
		all, err = gatherValues(x, &v, root, false)
	}
	return all, c.failColl("GatherValues", err)
}

// AllgatherValues returns the values of all ranks, in rank order, at every rank.
func AllgatherValues[T any](c *Comm, v T) ([]T, error) {
	err := c.check()
	var all []T
	if err == nil {
		x := c.newValueCall(noRoot, value.Of[T]())
		all, err = gatherValues(x, &v, 0, true)
	}
	return all, c.failColl("AllgatherValues", err)
}

// gatherValues gathers the values of all ranks, at the root or everywhere: first their headers, then the
// bytes.
func gatherValues[T any](x *compoundCall, v *T, root int, everywhere bool) ([]T, error) {
	c := x.comm
	mine, h := value.Encoded(v)
	here := everywhere || c.rank == root
	var headers []value.Header
	if here {
		headers = make([]value.Header, c.size)
	}
	first := coll.Call{Operation: coll.OpGather, Root: root, Count: len(h), ElemSize: 8}
	second := coll.Call{Operation: coll.OpGatherv, Root: root, Count: len(mine), ElemSize: 1}
	if everywhere {
		first.Operation, second.Operation = coll.OpAllgather, coll.OpAllgatherv
	}
	if err := x.run(first, wordBytes(h[:]), value.HeaderBytes(headers)); err != nil {
		return nil, err
	}
	total := 0
	if here {
		counts := make([]int, c.size)
		var err error
		if total, err = lengths(headers, counts); err != nil {
			return nil, err
		}
		second.Recv = &coll.Blocks{Counts: counts, ElemSize: 1}
	}
	b := make([]byte, total)
	if err := x.run(second, mine, b); err != nil {
		return nil, err
	}
	if err := h.Failure(c.rank, mine); err != nil || !here {
		return nil, err
	}
	return value.AllReceived[T](headers, b)
}

// ScatterValues returns at each rank the value that root has for it: in[i] for rank i. Only root uses in,
// which has a value for each rank. If root cannot send one of them, or has another number of them, all ranks
// get the error.
func ScatterValues[T any](c *Comm, in []T, root int) (T, error) {
	err := c.checkRoot(root)
	var v T
	if err == nil {
		err = scatterValues(c, in, &v, root)
	}
	return v, c.failColl("ScatterValues", err)
}

func scatterValues[T any](c *Comm, in []T, v *T, root int) error {
	x := c.newValueCall(root, value.Of[T]())
	var headers []value.Header
	var all []byte
	var err error
	second := coll.Call{Operation: coll.OpScatterv, Root: root, ElemSize: 1}
	if c.rank == root {
		if headers, all, err = encodeForAll(in, c.size); err != nil {
			headers, all = value.Refusals(c.size, err)
		}
		second.Send = &coll.Blocks{Counts: make([]int, c.size), ElemSize: 1}
		for rank, h := range headers {
			second.Send.Counts[rank] = int(h[0])
		}
	}
	var h value.Header
	if err := x.run(coll.Call{Operation: coll.OpScatter, Root: root, Count: len(h), ElemSize: 8},
		value.HeaderBytes(headers), wordBytes(h[:])); err != nil {
		return err
	}
	total, lerr := lengths([]value.Header{h}, nil)
	if lerr != nil {
		return lerr
	}
	b := make([]byte, total)
	second.Count = total
	if rerr := x.run(second, all, b); rerr != nil {
		return rerr
	}
	if err != nil {
		return err // root's own
	}
	return value.Received(h, root, b, v)
}

// AlltoallValues sends in[i] to each rank i, and returns the values that all ranks have for this one, in rank
// order. in has a value for each rank. If a rank cannot send one of its values, or has another number of
// them, that rank and those that wait for its values get the error.
func AlltoallValues[T any](c *Comm, in []T) ([]T, error) {
	err := c.check()
	var all []T
	if err == nil {
		all, err = alltoallValues(c, in)
	}
	return all, c.failColl("AlltoallValues", err)
}

func alltoallValues[T any](c *Comm, in []T) ([]T, error) {
	x := c.newValueCall(noRoot, value.Of[T]())
	mine, out, failure := encodeForAll(in, c.size)
	if failure != nil {
		mine, out = value.Refusals(c.size, failure)
	}
	headers := make([]value.Header, c.size)
	if err := x.run(coll.Call{Operation: coll.OpAlltoall, Count: len(value.Header{}), ElemSize: 8},
		value.HeaderBytes(mine), value.HeaderBytes(headers)); err != nil {
		return nil, err
	}
	sent, counts := make([]int, c.size), make([]int, c.size)
	for rank, h := range mine {
		sent[rank] = int(h[0])
	}
	total, err := lengths(headers, counts)
	if err != nil {
		return nil, err
	}
	b := make([]byte, total)
	call := coll.Call{Operation: coll.OpAlltoallv, ElemSize: 1, Send: &coll.Blocks{Counts: sent, ElemSize: 1},
		Recv: &coll.Blocks{Counts: counts, ElemSize: 1}}
	if err := x.run(call, out, b); err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, failure
	}
	return value.AllReceived[T](headers, b)
}

// AllreduceValue combines the values of all ranks and returns the result at every rank. Values without a
// fixed size are combined in rank order. Ranks that pass values of different types get ErrType.
func AllreduceValue[T any](c *Comm, v T, op Op[T]) (T, error) {
	v, err := reduceValue(c, v, op, noRoot, func(in, out []T) error { return Allreduce(c, in, out, op) })
	return v, c.failColl("AllreduceValue", err)
}

// ReduceValue combines the values of all ranks, as AllreduceValue does, and returns the result at root. It
// returns the zero value at the others.
func ReduceValue[T any](c *Comm, v T, op Op[T], root int) (T, error) {
	err := c.checkRoot(root)
	if err == nil {
		v, err = reduceValue(c, v, op, root, func(in, out []T) error { return Reduce(c, in, out, op, root) })
	}
	if err == nil && c.rank != root {
		var none T
		v = none
	}
	return v, c.failColl("ReduceValue", err)
}

// reduceValue combines values in vectors of one element, if they have a fixed size, else in rank order after
// collecting them at root, or everywhere if there is none.
func reduceValue[T any](c *Comm, v T, op Op[T], root int, inVectors func(in, out []T) error) (T, error) {
	x, err := beginReduction(c, op, root)
	if err != nil {
		return v, err
	}
	if value.Of[T]().Word.Form() == value.Memory {
		out := make([]T, 1)
		err := inVectors([]T{v}, out)
		return out[0], err
	}
	all, err := gatherValues(x, &v, max(root, 0), root == noRoot)
	if err != nil || len(all) == 0 {
		return v, err
	}
	return combineValues(all, op), nil
}

// ExscanValue combines the values of the ranks before this one, as AllreduceValue does, and returns the
// result. It returns the zero value at rank 0.
func ExscanValue[T any](c *Comm, v T, op Op[T]) (T, error) {
	x, err := beginReduction(c, op, noRoot)
	var before T
	if err == nil && value.Of[T]().Word.Form() == value.Memory {
		out := make([]T, 1)
		err = Exscan(c, []T{v}, out, op)
		before = out[0]
	} else if err == nil {
		var all []T
		if all, err = gatherValues(x, &v, 0, true); err == nil && c.rank > 0 {
			before = combineValues(all[:c.rank], op)
		}
	}
	return before, c.failColl("ExscanValue", err)
}

// beginReduction begins a reduction of values, and finds out whether all ranks pass the same type.
func beginReduction[T any](c *Comm, op Op[T], root int) (*compoundCall, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if op.operator == nil {
		return nil, fmt.Errorf("%w: an Op comes from Sum, NewOp and the like", ErrOp)
	}
	t := value.Of[T]()
	x := c.newValueCall(root, t)
	word := uint64(t.Word &^ value.KindMask)
	common := []uint64{word, ^word} // bits set at all ranks, and bits set at none
	if err := x.allreduceAnd(common); err != nil {
		return nil, err
	}
	if common[0] != word || common[1] != ^word {
		return nil, fmt.Errorf("%w: the ranks pass values of different types, and this one's is of type %v, "+
			"or another rank made another call; WEFT_CHECK=1 tells which", ErrType, reflect.TypeFor[T]())
	}
	return x, nil
}

// combineValues combines values in order. It overwrites them.
func combineValues[T any](all []T, op Op[T]) T {
	for i := range all[1:] {
		op.operator.Apply(value.Bytes(&all[0]), value.Bytes(&all[i+1]))
	}
	return all[0]
}

// checkRoot is check for calls with a root.
func (c *Comm) checkRoot(root int) error {
	if err := c.check(); err != nil {
		return err
	}
	if uint(root) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s", ErrRoot, root, c.rankRange())
	}
	return nil
}

// lengths returns the lengths of values and their sum, by which this rank allocates memory.
func lengths(headers []value.Header, counts []int) (int, error) {
	total, err := value.Lengths(headers, counts, mostBytes())
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrCount, err)
	}
	return total, err
}

// encodeForAll encodes a value for each of size ranks.
func encodeForAll[T any](in []T, size int) ([]value.Header, []byte, error) {
	if len(in) != size {
		return nil, nil, fmt.Errorf("%w: %d values for %d ranks", ErrCount, len(in), size)
	}
	return value.EncodedAll(in)
}
