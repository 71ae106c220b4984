// Package vector combines long vectors of numbers by the processor's vector instructions, where it has them.
package vector

import "reflect"

type key struct {
	operator string
	kind     reflect.Kind
}

// loop combines n blocks: inout = inout op in.
type loop func(inout, in *byte, n int)

const block = 128 // bytes that a loop combines at a time

// Operator gives what combines two vectors of equal lengths by a predefined operator of package mpi: inout =
// inout op in. It falls back to rest for types without a vector loop, and for the elements after the last
// whole block. Both give the same bits, except for the bits of a NaN.
func Operator(name string, kind reflect.Kind, rest func(inout, in []byte)) func(inout, in []byte) {
	l := loops[key{name, kind}]
	if l == nil {
		return rest
	}
	return func(inout, in []byte) {
		if len(inout) >= block {
			in = in[:len(inout)]
			n := len(inout) / block
			l(&inout[0], &in[0], n)
			if inout, in = inout[n*block:], in[n*block:]; len(inout) == 0 {
				return
			}
		}
		rest(inout, in)
	}
}
