package mpi

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestOperators_VectorsAreAsElements: what the processor combines several at a time is to the last bit what
// it is element by element, of every length, at every place, and writes nothing else.
func TestOperators_VectorsAreAsElements(t *testing.T) {
	floats := []float64{0, math.Copysign(0, -1), 1, -1.5, math.Inf(1), math.Inf(-1), math.NaN(),
		math.MaxFloat64, math.SmallestNonzeroFloat64, 3e38, -1e-40}
	asElements(t, "float64", floats, numberOps[float64]())
	var floats32 []float32
	for _, f := range floats {
		floats32 = append(floats32, float32(f))
	}
	asElements(t, "float32", floats32, numberOps[float32]())
	integers[int8](t)
	integers[int16](t)
	integers[int32](t)
	integers[int64](t)
	integers[int](t)
	integers[uint8](t)
	integers[uint16](t)
	integers[uint32](t)
	integers[uint64](t)
	integers[uint](t)
	asElements(t, "complex64", []complex64{0, 1, -1i, 3 + 4i}, map[string]vectorTest[complex64]{
		"Sum": {Sum[complex64](), sum[complex64]}, "Prod": {Prod[complex64](), prod[complex64]}})
	asElements(t, "complex128", []complex128{0, 1, -1i, 3 + 4i}, map[string]vectorTest[complex128]{
		"Sum": {Sum[complex128](), sum[complex128]}, "Prod": {Prod[complex128](), prod[complex128]}})
}

type vectorTest[T any] struct {
	op    Op[T]
	plain func(inout, in []T)
}

func numberOps[T Ordered]() map[string]vectorTest[T] {
	return map[string]vectorTest[T]{"Sum": {Sum[T](), sum[T]}, "Prod": {Prod[T](), prod[T]},
		"Max": {Max[T](), maximum[T]}, "Min": {Min[T](), minimum[T]}}
}

func integers[T Integer](t *testing.T) {
	ops := numberOps[T]()
	ops["BAnd"] = vectorTest[T]{BAnd[T](), bitAnd[T]}
	ops["BOr"] = vectorTest[T]{BOr[T](), bitOr[T]}
	ops["BXor"] = vectorTest[T]{BXor[T](), bitXor[T]}
	var some []T
	for range 40 {
		some = append(some, T(rand.Uint64()))
	}
	asElements(t, fmt.Sprintf("%T", T(0)), append(some, 0, 1, ^T(0)), ops)
}

func asElements[T comparable](t *testing.T, name string, values []T, ops map[string]vectorTest[T]) {
	size := int(unsafe.Sizeof(values[0]))
	for label, o := range ops {
		t.Run(name+"/"+label, func(t *testing.T) {
			for n := range 2*256/size + 3 {
				for at := range 3 {
					inout, in := make([]T, n+6), make([]T, n+6)
					for i := range inout {
						inout[i], in[i] = values[rand.IntN(len(values))], values[rand.IntN(len(values))]
					}
					want := append([]T(nil), inout...)
					o.plain(want[at:at+n], in[2-at:2-at+n])
					o.op.operator.Apply(bytesIn(inout[at:at+n]), bytesIn(in[2-at:2-at+n]))
					for i, w := range want {
						got := inout[i]
						if got != got && w != w || bytes.Equal(bytesIn(want[i:i+1]), bytesIn(inout[i:i+1])) {
							continue // NaNs are alike
						}
						t.Fatalf("element %d of %d at %d: %v and %v", i, n, at, w, got)
					}
				}
			}
		})
	}
}

// BenchmarkOperators is how fast vectors are combined, in bytes of one of them.
func BenchmarkOperators(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10, 1 << 20} {
		benchmarkOperator(b, "Sum of float32", n, Sum[float32](), sum[float32])
		benchmarkOperator(b, "Sum of float64", n, Sum[float64](), sum[float64])
		benchmarkOperator(b, "Max of float64", n, Max[float64](), maximum[float64])
		benchmarkOperator(b, "Sum of int32", n, Sum[int32](), sum[int32])
	}
}

func benchmarkOperator[T any](b *testing.B, name string, bytes int, op Op[T], plain func(inout, in []T)) {
	x, y := make([]T, bytes/sizeOf[T]()), make([]T, bytes/sizeOf[T]())
	for form, f := range map[string]func(inout, in []byte){"used": op.operator.Apply,
		"by element": onBytes(plain)} {
		b.Run(fmt.Sprintf("%s/%d/%s", name, bytes, form), func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				f(bytesIn(x), bytesIn(y))
			}
		})
	}
}
