package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Rput is Put with a request (MPI 4.1, 12.3.5). When the request is complete, src may be reused; the elements
// have arrived after a Flush.
func (w *Win[T]) Rput(src []T, rank, at int) (Request, error) {
	start := w.base().beginCall(engine.CallRput, len(src))
	defer func() { w.base().endCall(engine.CallRput, start, rank, len(src)) }()
	t, offset, err := w.base().target(rank, at, len(src))
	if err != nil || t == nil {
		return Request{}, w.base().fail("Rput", rank, err)
	}
	h, err := t.BeginPut(memory(src), offset, w.via.canceller)
	t.Release()
	return w.begun("Rput", rank, h, err)
}

// Rget is Get with a request (MPI 4.1, 12.3.5). When the request is complete, dst holds the elements.
func (w *Win[T]) Rget(dst []T, rank, at int) (Request, error) {
	start := w.base().beginCall(engine.CallRget, len(dst))
	defer func() { w.base().endCall(engine.CallRget, start, rank, len(dst)) }()
	t, offset, err := w.base().target(rank, at, len(dst))
	if err != nil || t == nil {
		return Request{}, w.base().fail("Rget", rank, err)
	}
	h, err := t.BeginGet(memory(dst), offset, w.via.canceller)
	t.Release()
	return w.begun("Rget", rank, h, err)
}

// Raccumulate is Accumulate with a request (MPI 4.1, 12.3.5).
func (w *Win[T]) Raccumulate(src []T, rank, at int, op Op[T]) (Request, error) {
	start := w.base().beginCall(engine.CallRaccumulate, len(src))
	defer func() { w.base().endCall(engine.CallRaccumulate, start, rank, len(src)) }()
	t, offset, code, err := w.base().accumulate(rank, at, len(src), op.code())
	if err != nil || t == nil {
		return Request{}, w.base().fail("Raccumulate", rank, err)
	}
	defer t.Release()
	if len(src) == 0 {
		return Request{}, nil
	}
	h, err := t.BeginUpdate(memory(src), nil, offset, code, w.via.canceller)
	return w.begun("Raccumulate", rank, h, err)
}

// RgetAccumulate is GetAccumulate with a request (MPI 4.1, 12.3.5). When the request is complete, result
// holds the previous elements.
func (w *Win[T]) RgetAccumulate(src, result []T, rank, at int, op Op[T]) (Request, error) {
	start := w.base().beginCall(engine.CallRgetAccumulate, len(result))
	defer func() { w.base().endCall(engine.CallRgetAccumulate, start, rank, len(result)) }()
	src, err := operands(src, result, op)
	if err != nil {
		return Request{}, w.base().fail("RgetAccumulate", rank, err)
	}
	t, offset, code, err := w.base().accumulate(rank, at, len(result), op.code())
	if err != nil || t == nil {
		return Request{}, w.base().fail("RgetAccumulate", rank, err)
	}
	defer t.Release()
	if len(src) == 0 {
		return Request{}, nil
	}
	h, err := t.BeginUpdate(memory(src), memory(result), offset, code, w.via.canceller)
	return w.begun("RgetAccumulate", rank, h, err)
}

// begun is the request of an operation that has begun, or its error.
func (w *window) begun(op string, rank int, h engine.Request, err error) (Request, error) {
	if err != nil {
		return Request{}, w.fail(op, rank, err)
	}
	w.comm.e.Bind(h, w.via.canceller)
	return Request{h: h, c: w.via}, nil
}
