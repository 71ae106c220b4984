package rendezvous_test

import (
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/rendezvous"
)

// BenchmarkFetch is one announced message: the announcement, its Reads in pieces, and its FIN. A Pair copies
// the bytes.
func BenchmarkFetch(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", n), func(b *testing.B) {
			l := open(b, rendezvous.ReceiverConfig{Piece: 256 << 10, Depth: 2})
			src, into := pattern(0, 0, n), [][]byte{make([]byte, n)}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				_, ok, err := l.a.snd.TrySendRTS(l.a.ch, eager.Envelope{Context: 1, Tag: 2}, src, 5, false)
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
				must(b, l.Drive())
				_, body, ok, err := l.b.ch.Next()
				if !ok || err != nil {
					b.Fatal(ok, err)
				}
				rts, err := rendezvous.ParseRTS(body)
				must(b, err)
				l.b.ch.Release()
				_, err = l.b.rcv.Start(l.b.ch, rts.Source, into, 6)
				must(b, err)
				l.readAndFinished(b, 6, 5)
			}
		})
	}
}
