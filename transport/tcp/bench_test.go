package tcp

import (
	"testing"

	"github.com/weft-mpi/weft/transport"
)

// BenchmarkSmallWrite is the way of an inline Write from one memory to another, to and fro, with one
// goroutine at both sides: what is measured is the provider and the kernel, with no other thread.
func BenchmarkSmallWrite(b *testing.B) {
	sides := newCouple(b, Options{}, 64, nil)
	var wrs [2]*transport.SendWR
	for i, s := range sides {
		wrs[i] = &transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline,
			Local:  []transport.SGE{{MR: s.out, Length: 8}},
			Remote: []transport.Segment{{Key: sides[1-i].in.Key(), Length: 8}}}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := sides[i&1].to.PostSend(wrs[i&1]); err != nil {
			b.Fatal(err)
		}
		for to := sides[1-i&1]; to.poll() == 0; {
		}
	}
}

// BenchmarkPlace is the same with Writes that are placed.
func BenchmarkPlace(b *testing.B) {
	sides := placing(b)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		from, to := sides[i&1], sides[1-i&1]
		q := from.to.(*qp)
		if !q.WriteInline(&transport.Segment{Key: to.in.Key(), Length: 64}, nil, nil, 1) {
			b.Fatal("no room")
		}
		for to.poll() == 0 {
		}
	}
}
