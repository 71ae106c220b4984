package mpi

import (
	"reflect"

	"github.com/weft-mpi/weft/mpi/internal/exact"
)

// Reproducible makes a communicator with the same ranks, as Dup does, whose reductions give the same bits
// every time: on any number of ranks, on any fabric, with any algorithm, in all forms. The result of an
// element depends only on what the ranks contribute to it:
//
//   - Sum of floating-point and complex numbers is the exact sum of the contributions, rounded once, to
//     nearest. It does not depend on their order, so it does not matter which rank has which contribution,
//     and ranks that contribute zeros change nothing but the sign of a zero: a sum of zero is -0 if all
//     contributions are -0, else +0. A NaN is always the same.
//   - Operators on floating-point numbers other than Sum, and operators made by NewOp, combine the
//     contributions one after another, in rank order. Ranks at the end that contribute the operator's neutral
//     element change nothing.
//   - Operators on integers have this property on every communicator.
//
// A sum that a rank computes before the call, from a part that depends on the number of ranks, has already
// been rounded. So a program that distributes n numbers gets the same bits if each number is an element of a
// contribution, or if the sums of such parts are exact.
//
// The call is collective. Reduce, Allreduce, ReduceScatter, Scan and Exscan bring all contributions to an
// element to one rank; Scan and Exscan need memory for one vector per rank. Communicators that Dup makes from
// the result have the property too.
func (c *Comm) Reproducible() (*Comm, error) {
	d, err := c.dup("Reproducible")
	if err == nil {
		d.reproducible = true
	}
	return d, err
}

// associative reports whether predefined operators on elements of a type give the same bits in any order:
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
