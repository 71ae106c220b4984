package exact

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

// reference adds with rational numbers.
func reference(x []float64) (total *big.Rat, special float64) {
	total = new(big.Rat)
	for _, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			special += v
		} else {
			total.Add(total, new(big.Rat).SetFloat64(v))
		}
	}
	return total, special
}

// onlyNegative reports whether all of x have their sign bit set; of zeros, then, the sum is -0.
func onlyNegative(x []float64) bool {
	for _, v := range x {
		if !math.Signbit(v) {
			return false
		}
	}
	return true
}

func check64(t *testing.T, x []float64) {
	t.Helper()
	total, special := reference(x)
	want, _ := total.Float64()
	if special != 0 {
		want = special
	}
	if total.Sign() == 0 && special == 0 && onlyNegative(x) {
		want = math.Copysign(0, -1)
	}
	got := []float64{0}
	Sum64(got, x)
	if math.IsNaN(want) {
		want = math.NaN()
	}
	assert.Equal(t, math.Float64bits(want), math.Float64bits(got[0]), "%v: %v, want %v", x, got[0], want)
}

func check32(t *testing.T, x []float32) {
	t.Helper()
	wide := make([]float64, len(x))
	for i := range x {
		wide[i] = float64(x[i])
	}
	total, special := reference(wide)
	want, _ := total.Float32()
	if special != 0 {
		want = float32(special)
	}
	if total.Sign() == 0 && special == 0 && onlyNegative(wide) {
		want = float32(math.Copysign(0, -1))
	}
	got := []float32{0}
	Sum32(got, x)
	if want != want {
		want = float32(math.NaN())
	}
	assert.Equal(t, math.Float32bits(want), math.Float32bits(got[0]), "%v: %v, want %v", x, got[0], want)
}

func TestSumsAreRoundedOnce(t *testing.T) {
	tiny, minus := math.SmallestNonzeroFloat64, math.Copysign(0, -1)
	for _, x := range [][]float64{
		{0}, {math.Copysign(0, -1)}, {math.Copysign(0, -1), math.Copysign(0, -1)}, {1, -1, 0},
		{minus, minus, minus}, {minus, 0, minus}, {0, minus, minus}, {minus, 1, -1}, {minus, minus, minus, minus},
		{1e300, 1, -1e300}, {1, 1e100, 1, -1e100}, {math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64},
		{math.MaxFloat64, math.MaxFloat64, 1}, {tiny, tiny, -tiny}, {1, tiny, tiny},
		{1, 0x1p-53, tiny}, {1, 0x1p-53, -tiny}, {1 + 0x1p-52, 0x1p-53, -tiny},
		{math.Inf(1), 1, 2}, {math.Inf(1), math.Inf(-1), 2}, {math.NaN(), 1, 2}, {math.NaN()},
		{math.Inf(-1)}, {math.Inf(1), math.MaxFloat64, math.MaxFloat64},
	} {
		check64(t, x)
	}
	for _, x := range [][]float32{
		{0}, {float32(minus)}, {float32(minus), float32(minus)}, {float32(minus), float32(minus), float32(minus)},
		{1, -1, 0}, {1, 0x1p-24, 0x1p-149}, {1, 0x1p-24, -0x1p-149}, {-1, -0x1p-24, -0x1p-149},
		{-1, -0x1p-24, 0x1p-149}, {math.MaxFloat32, math.MaxFloat32, -math.MaxFloat32},
		{math.MaxFloat32, math.MaxFloat32, 1}, {0x1p-149, 0x1p-149, 0x1p100, -0x1p100},
		{float32(math.Inf(1)), 1, 2}, {float32(math.Inf(1)), float32(math.Inf(-1)), 2},
		{math.MaxFloat32, 0x1p103, -0x1p-149}, {math.MaxFloat32, 0x1p103, 0x1p-149},
	} {
		check32(t, x)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		x, y := make([]float64, 1+r.IntN(17)), make([]float32, 1+r.IntN(17))
		spread := []int{1, 20, 60, 250, 2000}[r.IntN(5)]
		for i := range x {
			x[i] = math.Ldexp(r.Float64()-0.5, r.IntN(spread)-spread/2)
		}
		for i := range y {
			y[i] = float32(math.Ldexp(r.Float64()-0.5, r.IntN(spread)-spread/2))
		}
		check64(t, x)
		check32(t, y)
	}
}

// The vectors stand one after another.
func TestVectorsAreAddedElementByElement(t *testing.T) {
	got := make([]float64, 2)
	Sum64(got, []float64{1, 2, 10, 20, 100, 200})
	assert.Equal(t, []float64{111, 222}, got)
	small := make([]float32, 2)
	Sum32(small, []float32{1, 2, 10, 20})
	assert.Equal(t, []float32{11, 22}, small)
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("0123456789abcdef01234567"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x []float64
		var y []float32
		for i := 0; i+8 <= len(b) && len(x) < 20; i += 8 {
			x = append(x, math.Float64frombits(binary.LittleEndian.Uint64(b[i:])))
			y = append(y, math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		}
		if len(x) > 0 {
			check64(t, x)
			check32(t, y)
		}
	})
}

// Long vectors, in which some elements are hard to add.
func TestLongVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{63, 64, 65, 150, 1000} {
		const ranks = 5
		x := make([]float64, ranks*n)
		for i := range x {
			x[i] = r.Float64() - 0.5
			if r.IntN(500) == 0 {
				x[i] *= 0x1p200
			}
		}
		x[n+n/2] = math.Inf(1)
		got := make([]float64, n)
		Sum64(got, x)
		for i := range got {
			var of []float64
			for at := i; at < len(x); at += n {
				of = append(of, x[at])
			}
			total, special := reference(of)
			want, _ := total.Float64()
			if special != 0 {
				want = special
			}
			assert.Equal(t, math.Float64bits(want), math.Float64bits(got[i]), "element %d of %d", i, n)
		}
	}
}

// TestLongVectorsAreSumsOfElements compares what is added several elements at a time with the sums of single
// elements, zeros of both signs, NaNs, infinities and numbers that are hard to add among them.
func TestLongVectorsAreSumsOfElements(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	odd := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64,
		math.SmallestNonzeroFloat64, math.MaxFloat32, math.SmallestNonzeroFloat32,
		math.Float64frombits(0xFFF8_0000_0000_0123)}
	for range 300 {
		vectors, n := 2+r.IntN(6), 1+r.IntN(200)
		rare := []int{4, 40, 4000}[r.IntN(3)]
		x, y := make([]float64, vectors*n), make([]float32, vectors*n)
		for i := range x {
			x[i] = math.Ldexp(r.Float64()-0.5, r.IntN(40))
			if r.IntN(rare) == 0 {
				x[i] = odd[r.IntN(len(odd))]
			}
			y[i] = float32(x[i])
		}
		got64, got32 := make([]float64, n), make([]float32, n)
		Sum64(got64, x)
		Sum32(got32, y)
		for i := range n {
			var of64 []float64
			var of32 []float32
			for at := i; at < len(x); at += n {
				of64, of32 = append(of64, x[at]), append(of32, y[at])
			}
			want64, want32 := []float64{0}, []float32{0}
			Sum64(want64, of64)
			Sum32(want32, of32)
			if math.Float64bits(want64[0]) != math.Float64bits(got64[i]) ||
				math.Float32bits(want32[0]) != math.Float32bits(got32[i]) {
				t.Fatalf("element %d of %d, of %d vectors: %v and %v, want %v and %v, the sums of %v", i, n,
					vectors, got64[i], got32[i], want64[0], want32[0], of64)
			}
		}
	}
}

// A zero is negative where all addends are, and only there, in vectors of any length.
func TestZerosHaveTheirSign(t *testing.T) {
	minus := math.Copysign(0, -1)
	for _, ranks := range []int{2, 3, 5} {
		for _, n := range []int{1, 4, 9, 63, 64, 65, 150} {
			x, y := make([]float64, ranks*n), make([]float32, ranks*n)
			for i := range x {
				if i%n%3 != 0 || i/n != i%ranks { // every third sum may have an addend of +0
					x[i] = minus
				}
				y[i] = float32(x[i])
			}
			got64, got32 := make([]float64, n), make([]float32, n)
			Sum64(got64, x)
			Sum32(got32, y)
			for i := range n {
				negative := true
				for at := i; at < len(x); at += n {
					negative = negative && math.Signbit(x[at])
				}
				assert.Equal(t, negative, math.Signbit(got64[i]), "float64 %d of %d, %d ranks", i, n, ranks)
				assert.Equal(t, negative, math.Signbit(float64(got32[i])), "float32 %d of %d, %d ranks", i, n, ranks)
			}
		}
	}
}
