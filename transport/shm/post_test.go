package shm

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// While a request waits, a Write that could be carried out at once waits behind it.
func TestPost_NoWriteOvertakesOneThatWaits(t *testing.T) {
	const n = 64
	for name, place := range map[string]func(a *end, wr *transport.SendWR) error{
		"posted": func(a *end, wr *transport.SendWR) error { return a.qp.PostSend(wr) },
		"inline": func(a *end, wr *transport.SendWR) error {
			b := wr.Local[0].MR.Bytes()
			tail := binary.LittleEndian.Uint64(b[n-wordSize:])
			if a.qp.WriteInline(&wr.Remote[0], b[:n-wordSize], nil, tail) {
				return nil
			}
			return a.qp.PostSend(wr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := couple(t, Options{})
			first, second, dst, m := a.alloc(t, n), a.alloc(t, n), a.alloc(t, n), b.alloc(t, n)
			for i := range n {
				first.Bytes()[i], second.Bytes()[i] = 1, 2
			}
			require.NoError(t, a.qp.PostSend(writeOf(first, m, n))) // makes m the target of later ones
			waits := writeOf(first, m, n)
			waits.Local = []transport.SGE{{MR: first, Length: 8}, {MR: first, Offset: 8, Length: n - 8}}
			read := &transport.SendWR{Op: transport.OpRead, Local: []transport.SGE{{MR: dst, Length: n}},
				Remote: []transport.Segment{{Key: m.Key(), Length: n}}}
			require.NoError(t, a.qp.PostSend(read)) // until a pass
			require.NoError(t, a.qp.PostSend(waits))
			require.NoError(t, place(a, writeOf(second, m, n)))
			require.Equal(t, first.Bytes(), m.Bytes())
			for a.qp.SQ.Len() > 0 {
				a.cq.Poll(nil)
			}
			require.Equal(t, second.Bytes(), m.Bytes())
			require.Equal(t, first.Bytes(), dst.Bytes())
			require.NoError(t, place(a, writeOf(first, m, n)))
			require.Equal(t, first.Bytes(), m.Bytes(), "nothing waits, so it is placed at once")
		})
	}
}
