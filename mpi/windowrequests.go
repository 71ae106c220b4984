package mpi

import (
	"fmt"

	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Rput is Put with a request (MPI 4.1, 12.3.5), which is complete when src is the caller's again; the
// elements are there after a Flush.
func (w *Win[T]) Rput(src []T, rank, at int) (Request, error) {
	t, err := w.base().target(rank, at, len(src))
	if err != nil || t == nil {
		return Request{}, w.base().fail("Rput", rank, err)
	}
	h, err := t.BeginPut(memory(src), at*w.elem)
	return w.begun("Rput", rank, h, err)
}

// Rget is Get with a request (MPI 4.1, 12.3.5), which is complete when dst has the elements.
func (w *Win[T]) Rget(dst []T, rank, at int) (Request, error) {
	t, err := w.base().target(rank, at, len(dst))
	if err != nil || t == nil {
		return Request{}, w.base().fail("Rget", rank, err)
	}
	h, err := t.BeginGet(memory(dst), at*w.elem)
	return w.begun("Rget", rank, h, err)
}

// Raccumulate is Accumulate with a request (MPI 4.1, 12.3.5).
func (w *Win[T]) Raccumulate(src []T, rank, at int, op Op[T]) (Request, error) {
	t, code, err := w.base().accumulate(rank, at, len(src), op.code())
	if err != nil || t == nil || len(src) == 0 {
		return Request{}, w.base().fail("Raccumulate", rank, err)
	}
	h, err := t.BeginUpdate(memory(src), nil, at*w.elem, code)
	return w.begun("Raccumulate", rank, h, err)
}

// RgetAccumulate is GetAccumulate with a request (MPI 4.1, 12.3.5), which is complete when result has what
// was there.
func (w *Win[T]) RgetAccumulate(src, result []T, rank, at int, op Op[T]) (Request, error) {
	t, code, err := w.base().accumulate(rank, at, len(result), op.code())
	if err == nil && len(src) != len(result) {
		err = fmt.Errorf("%w: %d elements, and room for %d results", ErrCount, len(src), len(result))
	}
	if err != nil || t == nil || len(src) == 0 {
		return Request{}, w.base().fail("RgetAccumulate", rank, err)
	}
	h, err := t.BeginUpdate(memory(src), memory(result), at*w.elem, code)
	return w.begun("RgetAccumulate", rank, h, err)
}

// begun is the request of an operation that has begun, or its error.
func (w *window) begun(op string, rank int, h engine.Request, err error) (Request, error) {
	if err != nil {
		return Request{}, w.fail(op, rank, err)
	}
	return Request{h: h, c: w.comm}, nil
}
