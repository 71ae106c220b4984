package vector

import (
	"reflect"

	"github.com/weft-mpi/weft/internal/sys"
)

// Each combines n blocks of 128 bytes, at least one.
//
//go:noescape
func sumFloat64(inout, in *byte, n int)

//go:noescape
func sumFloat32(inout, in *byte, n int)

//go:noescape
func sum64(inout, in *byte, n int)

//go:noescape
func sum32(inout, in *byte, n int)

//go:noescape
func sum16(inout, in *byte, n int)

//go:noescape
func sum8(inout, in *byte, n int)

//go:noescape
func prodFloat64(inout, in *byte, n int)

//go:noescape
func prodFloat32(inout, in *byte, n int)

//go:noescape
func prod32(inout, in *byte, n int)

//go:noescape
func prod16(inout, in *byte, n int)

//go:noescape
func maxFloat64(inout, in *byte, n int)

//go:noescape
func maxFloat32(inout, in *byte, n int)

//go:noescape
func maxInt32(inout, in *byte, n int)

//go:noescape
func maxInt16(inout, in *byte, n int)

//go:noescape
func maxInt8(inout, in *byte, n int)

//go:noescape
func maxUint32(inout, in *byte, n int)

//go:noescape
func maxUint16(inout, in *byte, n int)

//go:noescape
func maxUint8(inout, in *byte, n int)

//go:noescape
func minFloat64(inout, in *byte, n int)

//go:noescape
func minFloat32(inout, in *byte, n int)

//go:noescape
func minInt32(inout, in *byte, n int)

//go:noescape
func minInt16(inout, in *byte, n int)

//go:noescape
func minInt8(inout, in *byte, n int)

//go:noescape
func minUint32(inout, in *byte, n int)

//go:noescape
func minUint16(inout, in *byte, n int)

//go:noescape
func minUint8(inout, in *byte, n int)

//go:noescape
func and(inout, in *byte, n int)

//go:noescape
func or(inout, in *byte, n int)

//go:noescape
func xor(inout, in *byte, n int)

var loops = func() map[key]loop {
	if !sys.AVX2 {
		return nil
	}
	all := map[key]loop{
		{"Sum", reflect.Float64}:    sumFloat64,
		{"Sum", reflect.Complex128}: sumFloat64, // two numbers beside each other
		{"Sum", reflect.Float32}:    sumFloat32,
		{"Sum", reflect.Complex64}:  sumFloat32,
		{"Prod", reflect.Float64}:   prodFloat64,
		{"Prod", reflect.Float32}:   prodFloat32,
		{"Max", reflect.Float64}:    maxFloat64,
		{"Max", reflect.Float32}:    maxFloat32,
		{"Max", reflect.Int32}:      maxInt32,
		{"Max", reflect.Int16}:      maxInt16,
		{"Max", reflect.Int8}:       maxInt8,
		{"Max", reflect.Uint32}:     maxUint32,
		{"Max", reflect.Uint16}:     maxUint16,
		{"Max", reflect.Uint8}:      maxUint8,
		{"Min", reflect.Float64}:    minFloat64,
		{"Min", reflect.Float32}:    minFloat32,
		{"Min", reflect.Int32}:      minInt32,
		{"Min", reflect.Int16}:      minInt16,
		{"Min", reflect.Int8}:       minInt8,
		{"Min", reflect.Uint32}:     minUint32,
		{"Min", reflect.Uint16}:     minUint16,
		{"Min", reflect.Uint8}:      minUint8,
	}
	word := map[reflect.Kind]loop{ // sums by the number of bits, whatever the sign
		reflect.Int: sum64, reflect.Int64: sum64, reflect.Uint: sum64, reflect.Uint64: sum64,
		reflect.Int32: sum32, reflect.Uint32: sum32, reflect.Int16: sum16, reflect.Uint16: sum16,
		reflect.Int8: sum8, reflect.Uint8: sum8,
	}
	for kind, sum := range word {
		all[key{"Sum", kind}] = sum
		all[key{"BAnd", kind}], all[key{"BOr", kind}], all[key{"BXor", kind}] = and, or, xor
	}
	for kind, l := range map[reflect.Kind]loop{reflect.Int32: prod32, reflect.Uint32: prod32,
		reflect.Int16: prod16, reflect.Uint16: prod16} {
		all[key{"Prod", kind}] = l
	}
	return all
}()
