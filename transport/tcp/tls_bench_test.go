package tcp

import (
	"fmt"
	"testing"
)

// BenchmarkWriteTLS is what encryption costs: one Write, one way, with both sides driven by one goroutine.
func BenchmarkWriteTLS(b *testing.B) {
	for _, encrypted := range []bool{false, true} {
		for _, n := range []int{64, 8 << 10, 128 << 10} {
			b.Run(fmt.Sprintf("tls=%v/bytes=%d", encrypted, n), func(b *testing.B) {
				ends := newCouple(b, Options{TLS: encrypted}, n, nil)
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					ends[0].writes(b, ends[1])
					ends[1].awaits(b, ends[0])
				}
			})
		}
	}
}
