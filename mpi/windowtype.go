package mpi

import (
	"reflect"

	"github.com/weft-mpi/weft/mpi/internal/rma"
)

// operatorCodes are the predefined operators that accumulates have.
var operatorCodes = map[string]rma.Code{
	"Sum": rma.Sum, "Prod": rma.Prod, "Max": rma.Max, "Min": rma.Min, "BAnd": rma.BAnd, "BOr": rma.BOr,
	"BXor": rma.BXor, "LAnd": rma.LAnd, "LOr": rma.LOr, "MaxLoc": rma.MaxLoc, "MinLoc": rma.MinLoc,
	"Replace": rma.Replace, "NoOp": rma.NoOp,
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

// windowType is how elements of type T are changed in windows.
func windowType[T any]() rma.Type {
	t := rma.Type{Size: sizeOf[T]()}
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		t.Kind = rma.Int
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		t.Kind = rma.Uint
	case reflect.Float32, reflect.Float64:
		t.Kind = rma.Float
	case reflect.Complex64:
		t.Kind = rma.Complex
	case reflect.Complex128:
		t.Kind = rma.Complex
		applies(&t, Sum[complex128](), Prod[complex128]())
	case reflect.Struct:
		locApplies[T](&t)
	}
	return t
}

func applies[T any](t *rma.Type, ops ...Op[T]) {
	for _, op := range ops {
		t.Apply[op.operator.Code] = op.operator.Apply
	}
}

// locApplies gives a Loc its operators.
func locApplies[T any](t *rma.Type) {
	switch any((*T)(nil)).(type) {
	case *Loc[int8]:
		locOf[int8](t)
	case *Loc[int16]:
		locOf[int16](t)
	case *Loc[int32]:
		locOf[int32](t)
	case *Loc[int64]:
		locOf[int64](t)
	case *Loc[int]:
		locOf[int](t)
	case *Loc[uint8]:
		locOf[uint8](t)
	case *Loc[uint16]:
		locOf[uint16](t)
	case *Loc[uint32]:
		locOf[uint32](t)
	case *Loc[uint64]:
		locOf[uint64](t)
	case *Loc[uint]:
		locOf[uint](t)
	case *Loc[float32]:
		locOf[float32](t)
	case *Loc[float64]:
		locOf[float64](t)
	}
}

func locOf[V Ordered](t *rma.Type) { applies(t, MaxLoc[V](), MinLoc[V]()) }

// code is the operator's name among ranks; rma.None for one of NewOp and for none.
func (o Op[T]) code() rma.Code {
	if o.operator == nil {
		return rma.None
	}
	return o.operator.Code
}
