package mpi

// Number, Integer and Ordered are the element types of the predefined operators.
type (
	Integer interface {
		~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	Float interface {
		~float32 | ~float64
	}
	Ordered interface {
		Integer | Float
	}
	Number interface {
		Ordered | ~complex64 | ~complex128
	}
)

// Op is a reduction operator (MPI 4.1, 6.9.2): inout[i] = inout[i] op in[i], element by element.
type Op[T any] struct {
	apply       func(inout, in []T)
	commutative bool
}

// NewOp makes an operator of a function, which must be associative; inout is its left operand. If it is not commutative the
// operands are combined in the order of ranks (MPI 4.1, 6.9.5). It is called from whichever goroutine drives the collective, with slices of
// equal length that it must not keep.
func NewOp[T any](f func(inout, in []T), commutative bool) Op[T] {
	return Op[T]{apply: f, commutative: commutative}
}

// Loc is the element of MaxLoc and MinLoc: a value and where it was.
type Loc[T any] struct {
	Value T
	Index int64
}

// Sum adds.
func Sum[T Number]() Op[T] { return Op[T]{sum[T], true} }

// Prod multiplies.
func Prod[T Number]() Op[T] { return Op[T]{prod[T], true} }

// Max takes the larger. A NaN on either side gives NaN.
func Max[T Ordered]() Op[T] { return Op[T]{maximum[T], true} }

// Min takes the smaller. A NaN on either side gives NaN.
func Min[T Ordered]() Op[T] { return Op[T]{minimum[T], true} }

// BAnd is the bitwise and.
func BAnd[T Integer]() Op[T] { return Op[T]{bitAnd[T], true} }

// BOr is the bitwise or.
func BOr[T Integer]() Op[T] { return Op[T]{bitOr[T], true} }

// BXor is the bitwise exclusive or.
func BXor[T Integer]() Op[T] { return Op[T]{bitXor[T], true} }

// LAnd is 1 where both are non-zero, else 0.
func LAnd[T Integer]() Op[T] { return Op[T]{logicalAnd[T], true} }

// LOr is 1 where either is non-zero, else 0.
func LOr[T Integer]() Op[T] { return Op[T]{logicalOr[T], true} }

// MaxLoc takes the larger value with its index; of equal values the smaller index.
func MaxLoc[T Ordered]() Op[Loc[T]] { return Op[Loc[T]]{maxLoc[T], true} }

// MinLoc takes the smaller value with its index; of equal values the smaller index.
func MinLoc[T Ordered]() Op[Loc[T]] { return Op[Loc[T]]{minLoc[T], true} }

func sum[T Number](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] += in[i]
	}
}

func prod[T Number](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] *= in[i]
	}
}

func maximum[T Ordered](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] = max(inout[i], in[i])
	}
}

func minimum[T Ordered](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] = min(inout[i], in[i])
	}
}

func bitAnd[T Integer](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] &= in[i]
	}
}

func bitOr[T Integer](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] |= in[i]
	}
}

func bitXor[T Integer](inout, in []T) {
	in = in[:len(inout)]
	for i := range inout {
		inout[i] ^= in[i]
	}
}

func logicalAnd[T Integer](inout, in []T) {
	for i := range inout {
		inout[i] = truth[T](inout[i] != 0 && in[i] != 0)
	}
}

func logicalOr[T Integer](inout, in []T) {
	for i := range inout {
		inout[i] = truth[T](inout[i] != 0 || in[i] != 0)
	}
}

func truth[T Integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

func maxLoc[T Ordered](inout, in []Loc[T]) {
	for i, b := range in[:len(inout)] {
		if a := inout[i]; b.Value > a.Value || b.Value == a.Value && b.Index < a.Index {
			inout[i] = b
		}
	}
}

func minLoc[T Ordered](inout, in []Loc[T]) {
	for i, b := range in[:len(inout)] {
		if a := inout[i]; b.Value < a.Value || b.Value == a.Value && b.Index < a.Index {
			inout[i] = b
		}
	}
}
