// Package rma changes the memory of a window: operators on words by the CPU's atomics, and the messages that
// ask another rank for them. It does no I/O.
package rma

import "math"

// Code names a predefined operator, also to other ranks.
type Code uint8

const (
	None Code = iota // no operator that ranks can tell each other of
	Sum
	Prod
	Max
	Min
	BAnd
	BOr
	BXor
	LAnd
	LOr
	MaxLoc
	MinLoc
	Replace // the operand
	NoOp    // the old value
	Swap    // the operand, if the old value equals the one compared with: compare-and-swap
	Codes
)

// Kind is what a machine makes of an element.
type Kind uint8

const (
	Opaque Kind = iota // bytes: they can be replaced, and compared
	Int
	Uint
	Float
	Complex
)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

// combineIntegers returns a op b; false if integers have no such operator.
func combineIntegers[T integer](op Code, a, b T) (T, bool) {
	switch op {
	case Sum:
		return a + b, true
	case Prod:
		return a * b, true
	case Max:
		return max(a, b), true
	case Min:
		return min(a, b), true
	case BAnd:
		return a & b, true
	case BOr:
		return a | b, true
	case BXor:
		return a ^ b, true
	case LAnd:
		return truth[T](a != 0 && b != 0), true
	case LOr:
		return truth[T](a != 0 || b != 0), true
	}
	return a, false
}

func truth[T integer](b bool) T {
	if b {
		return 1
	}
	return 0
}

// combineFloats returns a op b; false if floats have no such operator. A NaN on either side gives NaN.
func combineFloats[T float32 | float64](op Code, a, b T) (T, bool) {
	switch op {
	case Sum:
		return a + b, true
	case Prod:
		return a * b, true
	case Max:
		return max(a, b), true
	case Min:
		return min(a, b), true
	}
	return a, false
}

// combineComplex is a op b of two complex64, each in a word: the real part in the lower half.
func combineComplex(op Code, a, b uint64) (uint64, bool) {
	x := complex(math.Float32frombits(uint32(a)), math.Float32frombits(uint32(a>>32)))
	y := complex(math.Float32frombits(uint32(b)), math.Float32frombits(uint32(b>>32)))
	switch op {
	case Sum:
		x += y
	case Prod:
		x *= y
	default:
		return a, false
	}
	return uint64(math.Float32bits(real(x))) | uint64(math.Float32bits(imag(x)))<<32, true
}

// combine is a op b of elements of size bytes, which are the lowest bytes of the words.
func combine(kind Kind, size int, op Code, a, b uint64) (v uint64, ok bool) {
	switch op {
	case Replace:
		return b, true
	case NoOp:
		return a, true
	}
	switch kind {
	case Int:
		return combineInts(size, op, a, b)
	case Uint:
		return combineUints(size, op, a, b)
	case Float:
		if size == 8 {
			x, ok := combineFloats(op, math.Float64frombits(a), math.Float64frombits(b))
			return math.Float64bits(x), ok
		}
		x, ok := combineFloats(op, math.Float32frombits(uint32(a)), math.Float32frombits(uint32(b)))
		return uint64(math.Float32bits(x)), ok
	case Complex:
		return combineComplex(op, a, b)
	}
	return a, false
}

func combineInts(size int, op Code, a, b uint64) (uint64, bool) {
	switch size {
	case 1:
		x, ok := combineIntegers(op, int8(a), int8(b))
		return uint64(uint8(x)), ok
	case 2:
		x, ok := combineIntegers(op, int16(a), int16(b))
		return uint64(uint16(x)), ok
	case 4:
		x, ok := combineIntegers(op, int32(a), int32(b))
		return uint64(uint32(x)), ok
	}
	x, ok := combineIntegers(op, int64(a), int64(b))
	return uint64(x), ok
}

func combineUints(size int, op Code, a, b uint64) (uint64, bool) {
	switch size {
	case 1:
		x, ok := combineIntegers(op, uint8(a), uint8(b))
		return uint64(x), ok
	case 2:
		x, ok := combineIntegers(op, uint16(a), uint16(b))
		return uint64(x), ok
	case 4:
		x, ok := combineIntegers(op, uint32(a), uint32(b))
		return uint64(x), ok
	}
	x, ok := combineIntegers(op, a, b)
	return x, ok
}
