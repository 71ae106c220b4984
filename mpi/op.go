package mpi

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/rma"
	"github.com/weft-mpi/weft/mpi/internal/vector"
)

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
	operator *engine.Operator
}

// NewOp makes an operator from a function, which must be associative; inout is its left operand. If it is not
// commutative, the operands are combined in rank order (MPI 4.1, 6.9.5). weft may call the function from any
// goroutine that makes progress, with slices of equal length. The function must not keep the slices, and must
// not communicate.
func NewOp[T any](f func(inout, in []T), commutative bool) Op[T] {
	if f == nil {
		return Op[T]{}
	}
	return Op[T]{&engine.Operator{Apply: onBytes(f), Commutative: commutative, Func: f}}
}

// onBytes converts a function on elements to one on bytes, which must be aligned and whole elements.
func onBytes[T any](f func(inout, in []T)) func(inout, in []byte) {
	return func(inout, in []byte) { f(elements[T](inout), elements[T](in)) }
}

func elements[T any](b []byte) []T {
	size := max(sizeOf[T](), 1) // AllreduceValue sends values without bytes, too
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

// predefinedKey names a predefined operator on a type.
type predefinedKey struct {
	operator string
	element  any // a nil pointer to the type
}

type predefinedEntry struct {
	key      predefinedKey
	operator *engine.Operator
}

// predefined has the predefined operators that have been used: each is made once, so that a call of Sum
// allocates nothing.
var predefined struct {
	last atomic.Pointer[predefinedEntry] // the last one found, which usually is the next one too
	all  sync.Map                        // by predefinedKey
}

// lookup returns a predefined operator that was used before, or nil.
func lookup[T any](name string) *engine.Operator {
	key := predefinedKey{name, any((*T)(nil))}
	if e := predefined.last.Load(); e != nil && e.key == key {
		return e.operator
	}
	return lookupAll(key)
}

func lookupAll(key predefinedKey) *engine.Operator {
	e, ok := predefined.all.Load(key)
	if !ok {
		return nil
	}
	entry := e.(*predefinedEntry)
	predefined.last.Store(entry)
	return entry.operator
}

func define[T any](name string, f func(inout, in []T)) Op[T] {
	key, t := predefinedKey{name, any((*T)(nil))}, reflect.TypeFor[T]()
	apply := vector.Operator(name, t.Kind(), onBytes(f))
	o := &engine.Operator{Apply: apply, Commutative: true, Predefined: true, Label: name,
		Code: operatorCodes[name], Associative: associative(t)}
	if name == "Sum" {
		o.ApplyToAll = exactSum(t)
	}
	e, _ := predefined.all.LoadOrStore(key, &predefinedEntry{key, o})
	return Op[T]{e.(*predefinedEntry).operator}
}

// operatorCodes are the predefined operators of accumulates.
var operatorCodes = map[string]rma.Code{
	"Sum": rma.Sum, "Prod": rma.Prod, "Max": rma.Max, "Min": rma.Min, "BAnd": rma.BAnd, "BOr": rma.BOr,
	"BXor": rma.BXor, "LAnd": rma.LAnd, "LOr": rma.LOr, "MaxLoc": rma.MaxLoc, "MinLoc": rma.MinLoc,
	"Replace": rma.Replace, "NoOp": rma.NoOp,
}

// Loc is the element type of MaxLoc and MinLoc: a value and its location.
type Loc[T any] struct {
	Value T
	Index int64
}

// Sum adds.
func Sum[T Number]() Op[T] {
	if o := lookup[T]("Sum"); o != nil {
		return Op[T]{o}
	}
	return define("Sum", sum[T])
}

// Prod multiplies.
func Prod[T Number]() Op[T] {
	if o := lookup[T]("Prod"); o != nil {
		return Op[T]{o}
	}
	return define("Prod", prod[T])
}

// Max selects the larger value. A NaN on either side gives NaN.
func Max[T Ordered]() Op[T] {
	if o := lookup[T]("Max"); o != nil {
		return Op[T]{o}
	}
	return define("Max", maximum[T])
}

// Min selects the smaller value. A NaN on either side gives NaN.
func Min[T Ordered]() Op[T] {
	if o := lookup[T]("Min"); o != nil {
		return Op[T]{o}
	}
	return define("Min", minimum[T])
}

// BAnd is the bitwise and.
func BAnd[T Integer]() Op[T] {
	if o := lookup[T]("BAnd"); o != nil {
		return Op[T]{o}
	}
	return define("BAnd", bitAnd[T])
}

// BOr is the bitwise or.
func BOr[T Integer]() Op[T] {
	if o := lookup[T]("BOr"); o != nil {
		return Op[T]{o}
	}
	return define("BOr", bitOr[T])
}

// BXor is the bitwise exclusive or.
func BXor[T Integer]() Op[T] {
	if o := lookup[T]("BXor"); o != nil {
		return Op[T]{o}
	}
	return define("BXor", bitXor[T])
}

// LAnd is 1 if both operands are non-zero, else 0.
func LAnd[T Integer]() Op[T] {
	if o := lookup[T]("LAnd"); o != nil {
		return Op[T]{o}
	}
	return define("LAnd", logicalAnd[T])
}

// LOr is 1 if either operand is non-zero, else 0.
func LOr[T Integer]() Op[T] {
	if o := lookup[T]("LOr"); o != nil {
		return Op[T]{o}
	}
	return define("LOr", logicalOr[T])
}

// MaxLoc selects the larger value with its index; of equal values, the one with the smaller index. A NaN on
// either side is selected, as by Max; of two, the one with the smaller index. So the result does not depend
// on which rank has what.
func MaxLoc[T Ordered]() Op[Loc[T]] {
	if o := lookup[Loc[T]]("MaxLoc"); o != nil {
		return Op[Loc[T]]{o}
	}
	return define("MaxLoc", maxLoc[T])
}

// MinLoc selects the smaller value with its index; of equal values, the one with the smaller index. A NaN on
// either side is selected, as by Min; of two, the one with the smaller index.
func MinLoc[T Ordered]() Op[Loc[T]] {
	if o := lookup[Loc[T]]("MinLoc"); o != nil {
		return Op[Loc[T]]{o}
	}
	return define("MinLoc", minLoc[T])
}

// Replace stores the operand (MPI 4.1, 12.3.4, MPI_REPLACE): an atomic Put, or with FetchAndOp an exchange.
func Replace[T any]() Op[T] {
	if o := lookup[T]("Replace"); o != nil {
		return Op[T]{o}
	}
	return define("Replace", func(inout, in []T) { copy(inout, in) })
}

// NoOp leaves the element unchanged (MPI 4.1, 12.3.4, MPI_NO_OP): GetAccumulate and FetchAndOp with it are
// atomic reads.
func NoOp[T any]() Op[T] {
	if o := lookup[T]("NoOp"); o != nil {
		return Op[T]{o}
	}
	return define("NoOp", func([]T, []T) {})
}

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
		if a := inout[i]; b.Value > a.Value || !(b.Value < a.Value) && precedes(b, a) {
			inout[i] = b
		}
	}
}

func minLoc[T Ordered](inout, in []Loc[T]) {
	for i, b := range in[:len(inout)] {
		if a := inout[i]; b.Value < a.Value || !(b.Value > a.Value) && precedes(b, a) {
			inout[i] = b
		}
	}
}

// precedes orders two locations with equal or unordered values: a NaN first, then the smaller index.
func precedes[T Ordered](b, a Loc[T]) bool {
	if nan := b.Value != b.Value; nan != (a.Value != a.Value) {
		return nan
	}
	return b.Index < a.Index
}
