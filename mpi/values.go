package mpi

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// SendValue sends one value of any Go type to rank dst: a string, a slice, a map, or a struct that contains
// them. RecvValue receives it, into the same type.
//
// A value of fixed size without pointers is sent as its memory, and any other value in encoding/gob. The
// calls on values allocate, and copy more than once: they are meant for set-up and results, not for the inner
// loop.
//
// A type that would arrive incomplete is refused with ErrType: one with a channel, a function or an
// unexported field, unless the type encodes itself (gob.GobEncoder, encoding.BinaryMarshaler). Unexported
// fields are allowed only if the type has a fixed size and no pointers. A value that refers to itself is
// refused as well. A value in an interface needs gob.Register.
func SendValue[T any](c *Comm, v T, dst, tag int) error {
	err := c.checkSend(dst, tag)
	var b []byte
	if err == nil {
		b, err = encode(&v)
	}
	if err == nil {
		err = Send(c, b, dst, tag)
	}
	return c.fail("SendValue", dst, tag, err)
}

// RecvValue receives a value that SendValue sent, from rank src, or AnySource, with tag, or AnyTag. From
// ProcNull it returns the zero value.
func RecvValue[T any](c *Comm, src, tag int) (T, Status, error) {
	var v T
	var m Message
	var st Status
	err := c.checkRecv(src, tag)
	if err == nil {
		m, st, err = Mprobe(c, src, tag)
	}
	if err != nil || st.Source == ProcNull {
		return v, st, c.fail("RecvValue", src, tag, err)
	}
	b := make([]byte, st.Bytes())
	if st, err = Mrecv(&m, b); err == nil {
		err = decode(b, &v)
	}
	st.Count = 1
	return v, st, c.fail("RecvValue", st.Source, st.Tag, err)
}

// BcastValue returns root's value at every rank. The values that other ranks pass are not used. All ranks use
// the same type, one that SendValue can send.
func BcastValue[T any](c *Comm, v T, root int) (T, error) {
	err := c.checkRoot(root)
	if err == nil {
		err = bcastValue(c, &v, root)
	}
	return v, c.failColl("BcastValue", err)
}

func bcastValue[T any](c *Comm, v *T, root int) error {
	x := c.newRootedCall(root)
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
		b = make([]byte, h.bytes())
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
		all, err = gatherValues(c, &v, root, false)
	}
	return all, c.failColl("GatherValues", err)
}

// AllgatherValues returns the values of all ranks, in rank order, at every rank.
func AllgatherValues[T any](c *Comm, v T) ([]T, error) {
	err := c.check()
	var all []T
	if err == nil {
		all, err = gatherValues(c, &v, 0, true)
	}
	return all, c.failColl("AllgatherValues", err)
}

// gatherValues collects the values of all ranks, at the root or everywhere: first their lengths, then the
// bytes.
func gatherValues[T any](c *Comm, v *T, root int, everywhere bool) ([]T, error) {
	x := c.newRootedCall(root)
	mine, h := encoded(v)
	here := everywhere || c.rank == root
	var headers []valueHeader
	if here {
		headers = make([]valueHeader, c.size)
	}
	lengths := coll.Call{Operation: coll.OpGather, Root: root, Count: len(h), ElemSize: 8}
	bytes := coll.Call{Operation: coll.OpGatherv, Root: root, Count: len(mine), ElemSize: 1}
	if everywhere {
		lengths.Operation, bytes.Operation = coll.OpAllgather, coll.OpAllgatherv
	}
	if err := x.run(lengths, wordBytes(h[:]), headerBytes(headers)); err != nil {
		return nil, err
	}
	total := 0
	if here {
		counts := make([]int, c.size)
		for rank, h := range headers {
			counts[rank] = h.bytes()
			total += counts[rank]
		}
		bytes.Recv = &coll.Blocks{Counts: counts, ElemSize: 1}
	}
	b := make([]byte, total)
	if err := x.run(bytes, mine, b); err != nil {
		return nil, err
	}
	if err := h.failure(c.rank, mine); err != nil || !here {
		return nil, err
	}
	all := make([]T, c.size)
	for rank, h := range headers {
		if err := received(h, rank, b[:h.bytes()], &all[rank]); err != nil {
			return nil, err
		}
		b = b[h.bytes():]
	}
	return all, nil
}

// AllreduceValue combines the values of all ranks and returns the result at every rank. Values that have to
// be encoded (see SendValue) are combined in rank order.
func AllreduceValue[T any](c *Comm, v T, op Op[T]) (T, error) {
	err := c.check()
	if err == nil && op.operator == nil {
		err = fmt.Errorf("%w: an Op comes from Sum, NewOp and the like", ErrOp)
	}
	if err != nil {
		return v, c.failColl("AllreduceValue", err)
	}
	if checkElement[T]() == nil {
		out := make([]T, 1)
		err := Allreduce(c, []T{v}, out, op)
		return out[0], c.failColl("AllreduceValue", err)
	}
	all, err := gatherValues(c, &v, 0, true)
	if err != nil {
		return v, c.failColl("AllreduceValue", err)
	}
	for i := range all[1:] {
		op.operator.Apply(valueBytes(&all[0]), valueBytes(&all[i+1]))
	}
	return all[0], nil
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

// valueHeader goes before the bytes of a value: their number, and whether they are the text of an error,
// because the value could not be encoded.
type valueHeader [2]uint64

func (h valueHeader) bytes() int { return int(h[0]) }

// failure is the error of a rank whose value could not be encoded.
func (h valueHeader) failure(rank int, b []byte) error {
	if h[1] == 0 {
		return nil
	}
	return fmt.Errorf("%w: rank %d: %s", ErrType, rank, b)
}

// encoded is a value as bytes, or why it cannot be encoded.
func encoded[T any](v *T) ([]byte, valueHeader) {
	b, err := encode(v)
	var why *encodeError
	if errors.As(err, &why) {
		b = []byte(why.text())
		return b, valueHeader{uint64(len(b)), 1}
	}
	return b, valueHeader{uint64(len(b)), 0}
}

// received decodes the value of a rank.
func received[T any](h valueHeader, rank int, b []byte, v *T) error {
	if err := h.failure(rank, b); err != nil {
		return err
	}
	if err := decode(b, v); err != nil {
		return fmt.Errorf("value of rank %d: %w", rank, err)
	}
	return nil
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
