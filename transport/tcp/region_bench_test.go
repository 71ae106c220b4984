package tcp

import (
	"fmt"
	"testing"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/queuepair"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

// BenchmarkRegister is what a registration for one message costs: docs/internals/adr/0008 rests on it. The number of
// other regions, and the size, must not matter.
func BenchmarkRegister(b *testing.B) {
	for _, n := range []int{1, 64 << 10, 4 << 20} {
		for _, others := range []int{0, 10_000} {
			b.Run(fmt.Sprintf("bytes=%d/others=%d", n, others), func(b *testing.B) {
				p := domain(b)
				one := make([]byte, 1)
				for range others {
					if _, err := p.Register(one, transport.RemoteRead); err != nil {
						b.Fatal(err)
					}
				}
				buf := make([]byte, n)
				b.ReportAllocs()
				for b.Loop() {
					mr, err := p.Register(buf, transport.RemoteRead)
					if err != nil {
						b.Fatal(err)
					}
					if err := mr.Deregister(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAlloc is the same of fresh memory, which the kernel has to make.
func BenchmarkAlloc(b *testing.B) {
	p := domain(b)
	for b.Loop() {
		mr, err := p.Alloc(64<<10, transport.RemoteWrite)
		if err != nil {
			b.Fatal(err)
		}
		if err := mr.Deregister(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFind is what every frame that places something costs before it does.
func BenchmarkFind(b *testing.B) {
	p := domain(b).(*verbs.PD)
	m, err := p.Register(make([]byte, 64), transport.RemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	q := &qp{QP: queuepair.QP{PD: p}}
	key := m.Key()
	for b.Loop() {
		if _, err := q.PD.Find(key, transport.RemoteWrite, 8, 16); err != nil {
			b.Fatal(err)
		}
	}
}

func domain(b *testing.B) transport.PD {
	d, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	p, err := d.AllocPD()
	if err != nil {
		b.Fatal(err)
	}
	return p
}
