package mpi

import (
	"reflect"

	"github.com/weft-mpi/weft/mpi/internal/exact"
)

// Reproducible makes a communicator with the same ranks, as Dup does, whose reductions have the same bits on
// any number of ranks, on any fabric, by any algorithm, in all forms, each time. The result of an element
// depends on what the ranks contribute to it, and on nothing else:
//
//   - Sum of floating-point and complex numbers is the exact sum of the contributions, rounded once, to
//     nearest. It does not depend on their order: so it does not matter which rank has which contribution,
//     and ranks that contribute zeros change nothing. A sum of zero is +0; a NaN is always the same.
//   - Operators of floating-point numbers other than Sum, and those of NewOp, combine the contributions one
//     after another, in rank order. Ranks at the end that contribute the operator's neutral element change
//     nothing.
//   - Operators of integers have this property on every communicator.
//
// What a rank has added up before the call, from a part that depends on the number of ranks, has been rounded
// then. A program that distributes n numbers has the same bits if each of them is an element of a
// contribution, or if sums of such parts are exact.
//
// It is collective. Reduce, Allreduce, ReduceScatter, Scan and Exscan bring all contributions to an element
// to one rank; Scan and Exscan need memory for a vector of each rank. Communicators that Dup makes of it have
// the property too.
func (c *Comm) Reproducible() (*Comm, error) {
	d, err := c.dup("Reproducible")
	if err == nil {
		d.reproducible = true
	}
	return d, err
}

// associative tells whether predefined operators on elements of a type give the same bits in any order:
// those on integers, and on locations of integers.
func associative(t reflect.Type) bool {
	if t.Kind() == reflect.Struct {
		t = t.Field(0).Type
	}
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	}
	return true
}

// exactSum adds vectors of a type of floating-point or complex numbers; nil for other types.
func exactSum(t reflect.Type) func(dst, vectors []byte) {
	switch t.Kind() {
	case reflect.Float64, reflect.Complex128:
		return func(dst, vectors []byte) { exact.Sum64(elements[float64](dst), elements[float64](vectors)) }
	case reflect.Float32, reflect.Complex64:
		return func(dst, vectors []byte) { exact.Sum32(elements[float32](dst), elements[float32](vectors)) }
	}
	return nil
}
