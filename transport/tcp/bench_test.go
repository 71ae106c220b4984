package tcp

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// benchEnd is one side of a connection whose two sides one goroutine drives: what is measured is the provider and the kernel, with
// no other thread.
type benchEnd struct {
	dev  *Device
	pd   transport.PD
	cq   transport.CQ
	qp   transport.QP
	mem  transport.MR
	made chan transport.QP
}

func (e *benchEnd) Prepare(uint32) (transport.QPConfig, []byte, error) {
	return transport.QPConfig{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SendWR: 64, RecvWR: 64, Reads: 4}, nil, nil
}
func (e *benchEnd) Connected(_ uint32, qp transport.QP, _ []byte) { e.made <- qp }
func (e *benchEnd) Refused(string, error)                         {}

func benchPair(b *testing.B) [2]*benchEnd {
	var ends [2]*benchEnd
	var addr string
	for i := range ends {
		d, err := New(Options{})
		require.NoError(b, err)
		b.Cleanup(func() { d.Close() })
		e := &benchEnd{dev: d, made: make(chan transport.QP, 1)}
		e.pd, err = d.AllocPD()
		require.NoError(b, err)
		e.cq, err = d.CreateCQ(1<<10, 0)
		require.NoError(b, err)
		e.mem, err = e.pd.Alloc(4096, transport.LocalWrite|transport.RemoteRead|transport.RemoteWrite)
		require.NoError(b, err)
		ep, err := d.Listen(transport.Identity{Job: "bench", Rank: uint32(i), Size: 2}, e)
		require.NoError(b, err)
		addr = ep.Addr()
		ends[i] = e
	}
	require.NoError(b, ends[0].dev.end.Connect(context.Background(), 1, addr))
	for _, e := range ends {
		e.qp = <-e.made
	}
	return ends
}

// BenchmarkSmallWrite is the way of an inline Write from one memory to another, to and fro.
func BenchmarkSmallWrite(b *testing.B) {
	ends := benchPair(b)
	var wrs [2]*transport.SendWR
	for i := range ends {
		wrs[i] = &transport.SendWR{Op: transport.OpWrite, Flags: transport.FlagInline,
			Local:  []transport.SGE{{MR: ends[i].mem, Length: 8}},
			Remote: []transport.Segment{{Key: ends[1-i].mem.Key(), Length: 8}}}
	}
	var placed [4]transport.QPN
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		from, to := i&1, 1-i&1
		if err := ends[from].qp.PostSend(wrs[from]); err != nil {
			b.Fatal(err)
		}
		for ends[to].cq.Poll(nil); ends[to].cq.Placed(placed[:]) == 0; ends[to].cq.Poll(nil) {
		}
	}
}
