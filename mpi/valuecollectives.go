package mpi

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/coll"
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
	x := c.newValueCall(root, valueTypeOf[T]())
	var b []byte
	h := valueHeader{}
	if c.rank == root {
		b, h = encoded(v)
	}
	if err := x.run(coll.Call{Operation: coll.OpBcast, Root: root, Count: len(h), ElemSize: 8}, nil,
		wordBytes(h[:])); err != nil {
		return err
	}
	if c.rank != root {
		total, err := lengths([]valueHeader{h}, nil)
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
		return h.failure(root, b)
	}
	return received(h, root, b, v)
}

// GatherValues returns the values of all ranks, in rank order, at root. It returns nil at the others.
func GatherValues[T any](c *Comm, v T, root int) ([]T, error) {
	err := c.checkRoot(root)
	var all []T
	if err == nil {
		x := c.newValueCall(root, valueTypeOf[T]())
		all, err = gatherValues(x, &v, root, false)
	}
	return all, c.failColl("GatherValues", err)
}

// AllgatherValues returns the values of all ranks, in rank order, at every rank.
func AllgatherValues[T any](c *Comm, v T) ([]T, error) {
	err := c.check()
	var all []T
	if err == nil {
		x := c.newValueCall(noRoot, valueTypeOf[T]())
		all, err = gatherValues(x, &v, 0, true)
	}
	return all, c.failColl("AllgatherValues", err)
}

// gatherValues collects the values of all ranks, at the root or everywhere: first their headers, then the
// bytes.
func gatherValues[T any](x *compoundCall, v *T, root int, everywhere bool) ([]T, error) {
	c := x.comm
	mine, h := encoded(v)
	here := everywhere || c.rank == root
	var headers []valueHeader
	if here {
		headers = make([]valueHeader, c.size)
	}
	first := coll.Call{Operation: coll.OpGather, Root: root, Count: len(h), ElemSize: 8}
	second := coll.Call{Operation: coll.OpGatherv, Root: root, Count: len(mine), ElemSize: 1}
	if everywhere {
		first.Operation, second.Operation = coll.OpAllgather, coll.OpAllgatherv
	}
	if err := x.run(first, wordBytes(h[:]), headerBytes(headers)); err != nil {
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
	if err := h.failure(c.rank, mine); err != nil || !here {
		return nil, err
	}
	return allReceived[T](headers, b)
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
	x := c.newValueCall(root, valueTypeOf[T]())
	var headers []valueHeader
	var all []byte
	var err error
	second := coll.Call{Operation: coll.OpScatterv, Root: root, ElemSize: 1}
	if c.rank == root {
		if headers, all, err = encodedAll(in, c.size); err != nil {
			headers, all = refusals(c.size, err)
		}
		second.Send = &coll.Blocks{Counts: make([]int, c.size), ElemSize: 1}
		for rank, h := range headers {
			second.Send.Counts[rank] = int(h[0])
		}
	}
	var h valueHeader
	if err := x.run(coll.Call{Operation: coll.OpScatter, Root: root, Count: len(h), ElemSize: 8},
		headerBytes(headers), wordBytes(h[:])); err != nil {
		return err
	}
	total, lerr := lengths([]valueHeader{h}, nil)
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
	return received(h, root, b, v)
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
	x := c.newValueCall(noRoot, valueTypeOf[T]())
	mine, out, failure := encodedAll(in, c.size)
	if failure != nil {
		mine, out = refusals(c.size, failure)
	}
	headers := make([]valueHeader, c.size)
	if err := x.run(coll.Call{Operation: coll.OpAlltoall, Count: len(valueHeader{}), ElemSize: 8},
		headerBytes(mine), headerBytes(headers)); err != nil {
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
	return allReceived[T](headers, b)
}

// AllreduceValue combines the values of all ranks and returns the result at every rank. Values that have to
// be encoded (see SendValue) are combined in rank order. Ranks that pass values of different types get
// ErrType.
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
	if valueTypeOf[T]().word.form() == valueMemory {
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
	if err == nil && valueTypeOf[T]().word.form() == valueMemory {
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
	t := valueTypeOf[T]()
	x := c.newValueCall(root, t)
	word := uint64(t.word &^ wordKindMask)
	common := []uint64{word, ^word} // the bits that all have set, and those that none has
	if err := x.allreduceAnd(common); err != nil {
		return nil, err
	}
	if common[0] != word || common[1] != ^word {
		return nil, fmt.Errorf("%w: the ranks pass values of different types; this one's is of type %v",
			ErrType, reflect.TypeFor[T]())
	}
	return x, nil
}

// combineValues combines values in order. It overwrites them.
func combineValues[T any](all []T, op Op[T]) T {
	for i := range all[1:] {
		op.operator.Apply(valueBytes(&all[0]), valueBytes(&all[i+1]))
	}
	return all[0]
}

// checkRoot is check for calls with a root.
func (c *Comm) checkRoot(root int) error {
	if err := c.check(); err != nil {
		return err
	}
	if uint(root) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRoot, root, c.Name(), c.size-1)
	}
	return nil
}

// valueHeader goes before the bytes of a value: their number and the value's word. The word may say that the
// bytes are the text of an error, because the value could not be encoded.
type valueHeader [2]uint64

func (h valueHeader) word() valueWord { return valueWord(h[1]) }

// lengths gives the lengths of values and their sum, which make this rank allocate memory. counts may be nil.
func lengths(headers []valueHeader, counts []int) (total int, err error) {
	for i, h := range headers {
		if h[0] > uint64(mostBytes()-total) {
			return 0, fmt.Errorf("%w: values of more bytes than this machine has memory: %d, after %d",
				ErrCount, h[0], total)
		}
		total += int(h[0])
		if counts != nil {
			counts[i] = int(h[0])
		}
	}
	return total, nil
}

// failure is the error of a rank whose value could not be encoded.
func (h valueHeader) failure(rank int, b []byte) error {
	if h.word().form() != valueError {
		return nil
	}
	return fmt.Errorf("%w: rank %d: %s", ErrType, rank, b)
}

// encoded is a value as bytes, or why it cannot be encoded.
func encoded[T any](v *T) ([]byte, valueHeader) {
	b, err := encode(v, 0)
	if err != nil {
		return refusal(err)
	}
	return b, valueHeader{uint64(len(b)), uint64(valueTypeOf[T]().word)}
}

// refusal takes the place of a value.
func refusal(err error) ([]byte, valueHeader) {
	b := []byte(err.Error())
	var why *encodeError
	if errors.As(err, &why) {
		b = []byte(why.text())
	}
	return b, valueHeader{uint64(len(b)), uint64(valueError)}
}

// refusals takes the place of a value for each rank.
func refusals(size int, err error) (headers []valueHeader, all []byte) {
	b, h := refusal(err)
	for range size {
		headers, all = append(headers, h), append(all, b...)
	}
	return headers, all
}

// encodedAll encodes a value for each of size ranks.
func encodedAll[T any](in []T, size int) (headers []valueHeader, all []byte, err error) {
	if len(in) != size {
		return nil, nil, fmt.Errorf("%w: %d values for %d ranks", ErrCount, len(in), size)
	}
	for i := range in {
		b, err := encode(&in[i], 0)
		if err != nil {
			return nil, nil, err
		}
		headers = append(headers, valueHeader{uint64(len(b)), uint64(valueTypeOf[T]().word)})
		all = append(all, b...)
	}
	return headers, all, nil
}

// received decodes the value of a rank.
func received[T any](h valueHeader, rank int, b []byte, v *T) error {
	if err := h.failure(rank, b); err != nil {
		return err
	}
	err := valueTypeOf[T]().check(h.word(), reflect.TypeFor[T]())
	if err == nil {
		err = decode(b, v)
	}
	if err != nil {
		return fmt.Errorf("value of rank %d: %w", rank, err)
	}
	return nil
}

// allReceived decodes the values of all ranks.
func allReceived[T any](headers []valueHeader, b []byte) ([]T, error) {
	all := make([]T, len(headers))
	for rank, h := range headers {
		if err := received(h, rank, b[:h[0]], &all[rank]); err != nil {
			return nil, err
		}
		b = b[h[0]:]
	}
	return all, nil
}

func headerBytes(headers []valueHeader) []byte {
	if len(headers) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(headers))),
		len(headers)*int(unsafe.Sizeof(headers[0])))
}

// valueBytes is the memory of a value.
func valueBytes[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}
