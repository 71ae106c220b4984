// Package exact adds floating-point numbers as if to unlimited precision, and rounds once, to nearest, ties
// to even. So a sum does not depend on the order or grouping of the numbers.
//
// A sum of zero is -0 if all numbers are -0, else +0, as if the numbers were added one after another. If
// there is a NaN, or infinities of both signs, the sum is always the same NaN.
package exact

import (
	"math"
	"math/big"
)

// block is the number of independent sums computed at a time.
const block = 64

// Sum64 stores the elementwise sum of vectors in dst. The vectors are consecutive, each as long as dst.
func Sum64(dst, vectors []float64) {
	n := len(dst)
	if len(vectors) == 2*n {
		a, b := vectors[:n], vectors[n:2*n]
		i := 0
		if vectorized && n >= 4 {
			i = n &^ 3
			addPairs64(&dst[0], &a[0], &b[0], i)
		}
		for ; i < n; i++ {
			total := a[i] + b[i]
			if total != total {
				total = math.NaN()
			}
			dst[i] = total
		}
		return
	}
	for at := 0; at < n; at += block {
		sumBlock64(dst[at:min(at+block, n)], vectors[at:], n)
		signZeros(dst[at:min(at+block, n)], vectors[at:], n)
	}
}

func sumBlock64(dst, vectors []float64, n int) {
	var low [block]float64
	rests := low[:len(dst)]
	var exact bool
	if vectorized && len(dst) == block && len(vectors) > n {
		var lost [4]uint64
		begin64(&dst[0], &rests[0], &vectors[0], &vectors[n], block)
		for from := 2 * n; from < len(vectors); from += n {
			accumulate64(&dst[0], &rests[0], &vectors[from], block, &lost)
		}
		finish64(&dst[0], &rests[0], block, &lost)
		exact = lost == [4]uint64{}
	} else {
		exact = sumEach64(dst, rests, vectors, n)
	}
	if !exact {
		for i := range dst {
			dst[i] = slowSum64(vectors[i:], n)
		}
	}
}

// sumEach64 adds the vectors in a loop, and reports whether the sums are exact.
func sumEach64(dst, rests, vectors []float64, n int) bool {
	copy(dst, vectors)
	lost := 0.0 // not 0 if adding errors was inexact, NaN if a sum is not finite
	for from := n; from < len(vectors); from += n {
		for i, x := range vectors[from:][:len(dst)] {
			sum, err := twoSum(dst[i], x)
			rest, more := twoSum(rests[i], err)
			dst[i], rests[i] = sum, rest
			lost += math.Abs(more)
		}
	}
	for i := range dst {
		total := dst[i] + rests[i] + 0
		lost += total - total // NaN if it is not finite
		dst[i] = total
	}
	return lost == 0
}

// Sum32 is Sum64 for vectors of float32.
func Sum32(dst, vectors []float32) {
	n := len(dst)
	if len(vectors) == 2*n {
		a, b := vectors[:n], vectors[n:2*n]
		i := 0
		if vectorized && n >= 8 {
			i = n &^ 7
			addPairs32(&dst[0], &a[0], &b[0], i)
		}
		for ; i < n; i++ {
			total := a[i] + b[i]
			if total != total {
				total = float32(math.NaN())
			}
			dst[i] = total
		}
		return
	}
	for at := 0; at < n; at += block {
		sumBlock32(dst[at:min(at+block, n)], vectors[at:], n)
		signZeros(dst[at:min(at+block, n)], vectors[at:], n)
	}
}

func sumBlock32(dst, vectors []float32, n int) {
	if !vectorized || len(dst) != block || len(vectors) <= n {
		for i := range dst {
			dst[i] = sum32(vectors[i:], n)
		}
		return
	}
	var sums, rests [block]float64
	var lost [4]uint64
	begin32(&sums[0], &rests[0], &vectors[0], &vectors[n], block)
	for from := 2 * n; from < len(vectors); from += n {
		accumulate32(&sums[0], &rests[0], &vectors[from], block, &lost)
	}
	if lost != [4]uint64{} {
		for i := range dst {
			dst[i] = sum32(vectors[i:], n)
		}
		return
	}
	for i := range dst {
		dst[i] = round32(sums[i], rests[i])
	}
}

// signZeros sets the sign of zero sums. Every n-th number is an addend of the same sum.
func signZeros[T float32 | float64](dst, vectors []T, n int) {
	for i, total := range dst {
		if total == 0 && onlyNegativeZeros(vectors[i:], n) {
			dst[i] = T(math.Copysign(0, -1))
		}
	}
}

func onlyNegativeZeros[T float32 | float64](x []T, n int) bool {
	for at := 0; at < len(x); at += n {
		if x[at] != 0 || !math.Signbit(float64(x[at])) {
			return false
		}
	}
	return true
}

// twoSum returns the rounded sum and its error, which together are the exact sum (D. E. Knuth). As long as
// the errors of several additions are added exactly, the rounded sum and the sum of the errors are the exact
// sum, and one addition rounds it. This holds unless magnitudes differ by far.
func twoSum(a, b float64) (sum, err float64) {
	sum = a + b
	other := sum - a
	return sum, (a - (sum - other)) + (b - other)
}

// sum32 adds every n-th number in float64, and rounds the exact sum once.
func sum32(x []float32, n int) float32 {
	sum, low, lost := float64(x[0]), 0.0, false
	for at := n; at < len(x); at += n {
		var err, rest float64
		sum, err = twoSum(sum, float64(x[at]))
		low, rest = twoSum(low, err)
		lost = lost || rest != 0
	}
	if lost {
		return slowSum32(x, n)
	}
	return round32(sum, low)
}

// round32 rounds the exact sum of two numbers. It first rounds to odd in float64: if low is not 0, the last
// bit of the intermediate result is 1, so the second rounding equals that of the exact sum.
func round32(sum, low float64) float32 {
	sum, low = twoSum(sum, low)
	if bits := math.Float64bits(sum); low != 0 && bits&1 == 0 && low == low {
		if (low > 0) == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return plain(float32(sum))
}

func plain[T float32 | float64](x T) T {
	switch {
	case x == 0:
		return 0
	case x != x:
		return T(math.NaN())
	}
	return x
}

// precision is enough for every sum of float64: all bits of the format, and some for carries.
const precision = 2200

// slowSum64 adds every n-th number exactly, for any magnitudes.
func slowSum64(x []float64, n int) float64 {
	total, special := slowSum(x, n)
	if special != 0 {
		return plain(special)
	}
	sum, _ := total.Float64()
	return plain(sum)
}

// slowSum32 is slowSum64 for float32.
func slowSum32(x []float32, n int) float32 {
	total, special := slowSum(x, n)
	if special != 0 {
		return plain(float32(special))
	}
	sum, _ := total.Float32()
	return plain(sum)
}

// slowSum returns the exact sum of every n-th number, and that of the infinities and NaNs, which is not 0 if
// there are any.
func slowSum[T float32 | float64](x []T, n int) (total *big.Float, special float64) {
	total = new(big.Float).SetPrec(precision)
	for at := 0; at < len(x); at += n {
		if v := float64(x[at]); v-v != 0 {
			special += v
		} else {
			total.Add(total, new(big.Float).SetFloat64(v))
		}
	}
	return total, special
}
