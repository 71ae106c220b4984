package main

import (
	"math"
	"math/bits"
	"math/cmplx"
)

// transformer computes Fourier transforms of one length, a power of two.
type transformer struct {
	roots    []complex128 // exp(-2πik/n) for k to n/2
	reversed []int        // each index with its bits in the opposite order
}

func newTransformer(n int) *transformer {
	t := &transformer{make([]complex128, n/2), make([]int, n)}
	for k := range t.roots {
		t.roots[k] = cmplx.Rect(1, -2*math.Pi*float64(k)/float64(n))
	}
	shift := 64 - (bits.Len(uint(n)) - 1)
	for i := range t.reversed {
		t.reversed[i] = int(bits.Reverse64(uint64(i)) >> shift)
	}
	return t
}

// forward replaces x by its transform, the sums over j of x[j]·exp(-2πijk/n).
func (t *transformer) forward(x []complex128) {
	for i, j := range t.reversed {
		if i < j {
			x[i], x[j] = x[j], x[i]
		}
	}
	// The transforms of the numbers at even and at odd places, of half the length, make a whole one (Cooley
	// and Tukey, 1965).
	for half := 1; half < len(x); half *= 2 {
		step := len(x) / (2 * half)
		for begin := 0; begin < len(x); begin += 2 * half {
			even, odd := x[begin:][:half], x[begin+half:][:half]
			for k := range even {
				product := odd[k] * t.roots[k*step]
				even[k], odd[k] = even[k]+product, even[k]-product
			}
		}
	}
}

// backward is the opposite of forward.
func (t *transformer) backward(x []complex128) {
	t.forward(x)
	// The opposite transform is the same with the indices counted backwards, but for the scale.
	scale := complex(1/float64(len(x)), 0)
	x[0] *= scale
	for i, j := 1, len(x)-1; i <= j; i, j = i+1, j-1 {
		if i == j {
			x[i] *= scale
			break
		}
		x[i], x[j] = x[j]*scale, x[i]*scale
	}
}
