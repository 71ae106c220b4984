package exact

import "github.com/weft-mpi/weft/internal/sys"

// vectorized reports whether the processor has the instructions of the functions below, which do what the
// loops in sum.go do.
var vectorized = sys.AVX2

// addPairs64 adds n pairs, a positive multiple of 4.
//
//go:noescape
func addPairs64(dst, a, b *float64, n int)

// addPairs32 adds n pairs, a positive multiple of 8.
//
//go:noescape
func addPairs32(dst, a, b *float32, n int)

// begin64 stores the sums of n pairs, a positive multiple of 4, and their rounding errors.
//
//go:noescape
func begin64(sums, rests, a, b *float64, n int)

// begin32 is begin64 for float32.
//
//go:noescape
func begin32(sums, rests *float64, a, b *float32, n int)

// accumulate64 adds n numbers, a positive multiple of 4, to sums and their errors. It sets bits of lost if
// adding errors was inexact.
//
//go:noescape
func accumulate64(sums, rests, x *float64, n int, lost *[4]uint64)

// accumulate32 is accumulate64 for float32.
//
//go:noescape
func accumulate32(sums, rests *float64, x *float32, n int, lost *[4]uint64)

// finish64 rounds n sums, a positive multiple of 4. It sets bits of lost if one is not finite.
//
//go:noescape
func finish64(sums, rests *float64, n int, lost *[4]uint64)
