package rma

import (
	"bytes"
	"math"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Elements of 1 and 2 bytes share words with their neighbors, and lose nothing by that.
func TestPartsOfWords(t *testing.T) {
	mem := make([]uint64, 2)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			x := Type{Kind: Uint, Size: 1}
			for range 200 {
				x.Word(unsafe.Add(unsafe.Pointer(&mem[0]), i), 1, 0, Sum)
			}
		})
	}
	all.Wait()
	for _, b := range unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 16) {
		require.Equal(t, byte(200), b)
	}
}

func TestOperators(t *testing.T) {
	for _, c := range []struct {
		kind          Kind
		size          int
		op            Code
		a, b, want    uint64
		compare, none uint64
	}{
		{kind: Int, size: 4, op: Sum, a: 5, b: 0xffffffff, want: 4},
		{kind: Int, size: 8, op: Min, a: 5, b: math.MaxUint64, want: math.MaxUint64},
		{kind: Uint, size: 8, op: Min, a: 5, b: math.MaxUint64, want: 5},
		{kind: Int, size: 2, op: Max, a: 0xffff, b: 0, want: 0},
		{kind: Uint, size: 1, op: Prod, a: 20, b: 20, want: 144},
		{kind: Int, size: 1, op: LAnd, a: 2, b: 4, want: 1},
		{kind: Float, size: 8, op: Sum, a: math.Float64bits(1.5), b: math.Float64bits(2), want: math.Float64bits(3.5)},
		{kind: Float, size: 4, op: Prod, a: uint64(math.Float32bits(3)), b: uint64(math.Float32bits(2)),
			want: uint64(math.Float32bits(6))},
		{kind: Opaque, size: 8, op: Replace, a: 1, b: 2, want: 2},
		{kind: Opaque, size: 4, op: NoOp, a: 1, b: 2, want: 1},
		{kind: Int, size: 8, op: Swap, a: 1, b: 2, compare: 1, want: 2},
		{kind: Int, size: 2, op: Swap, a: 1, b: 2, compare: 3, want: 1},
	} {
		x := Type{Kind: c.kind, Size: c.size}
		require.True(t, x.Has(c.op))
		mem := []uint64{0, 0}
		at := unsafe.Pointer(&mem[1])
		put(unsafe.Slice((*byte)(at), 8), c.a, c.size)
		require.Equal(t, c.a, x.Word(at, c.b, c.compare, c.op))
		require.Equal(t, c.want, get(unsafe.Slice((*byte)(at), 8), c.size), "%+v", c)
	}
	require.False(t, (&Type{Kind: Float, Size: 8}).Has(BXor))
	require.False(t, (&Type{Kind: Opaque, Size: 8}).Has(Sum))
	require.False(t, (&Type{Kind: Complex, Size: 8}).Has(Max))
}

// A lock that its holder does not leave is given up, and nothing is changed.
func TestLockOfADeadHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the lock's timeout")
	}
	x, lock := Type{Size: 16}, Lock{1}
	mem := make([]uint64, 2)
	require.False(t, x.Update(unsafe.Pointer(&mem[0]), make([]byte, 16), nil, nil, Replace, &lock))
	lock.leave()
	require.True(t, x.Update(unsafe.Pointer(&mem[0]), bytes.Repeat([]byte{1}, 16), nil, nil, Replace, &lock))
}

func FuzzParseUpdate(f *testing.F) {
	u := Update{Window: 1, Generation: 2, Number: 3, Op: Swap, Fetch: true, Offset: 8, Data: make([]byte, 16)}
	f.Add(u.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := ParseUpdate(b); err == nil {
			require.Equal(t, b, u.Append(nil))
		}
	})
}

func FuzzParseUpdated(f *testing.F) {
	u := Updated{Generation: 2, Number: 3, Outcome: Stuck, Old: make([]byte, 8)}
	f.Add(u.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := ParseUpdated(b); err == nil {
			require.Equal(t, b[:8], u.Append(nil)[:8])
			require.Equal(t, b[UpdatedHeader:], u.Old)
		}
	})
}
