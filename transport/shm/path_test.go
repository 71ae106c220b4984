package shm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// until polls both ends until a completion comes to the first.
func until(t testing.TB, a, b *end) {
	for a.cq.Poll(a.wc[:]) == 0 {
		b.cq.Poll(nil)
	}
	if a.wc[0].Status != transport.StatusSuccess {
		t.Fatal(a.wc[0].Err)
	}
}

func TestAllocations(t *testing.T) {
	for _, o := range []Options{{}, {NoCMA: true}} {
		a, b := couple(t, o)
		const n = 40_000
		src, dst := a.alloc(t, n), b.alloc(t, n)
		buf := make([]byte, n)
		ordinary, err := b.pd.Register(make([]byte, n), everyRight)
		require.NoError(t, err)
		small, large := writeOf(src, dst, 64), writeOf(src, ordinary, n)
		large.Flags = transport.FlagSignaled
		send := &transport.SendWR{Op: transport.OpSend, Flags: transport.FlagSignaled,
			Local: []transport.SGE{{MR: src, Length: 3000}}}
		room := &transport.RecvWR{Local: []transport.SGE{{MR: dst, Length: 3000}}}
		read := &transport.SendWR{Op: transport.OpRead, Flags: transport.FlagSignaled,
			Local:  []transport.SGE{{MR: src, Length: n}},
			Remote: []transport.Segment{{Key: ordinary.Key(), Length: n}}}
		for name, f := range map[string]func(){
			"a small Write":           func() { require.NoError(t, a.qp.PostSend(small)); a.cq.Poll(nil) },
			"a Write to other memory": func() { require.NoError(t, a.qp.PostSend(large)); until(t, a, b) },
			"a Read of other memory":  func() { require.NoError(t, a.qp.PostSend(read)); until(t, a, b) },
			"a Send": func() {
				require.NoError(t, b.qp.PostRecv(room))
				require.NoError(t, a.qp.PostSend(send))
				until(t, a, b)
				until(t, b, a)
			},
			"a registration": func() {
				m, _ := a.pd.Register(buf,
					everyRight)
				_ = m.Deregister()
			},
			"a registration of the arena": func() {
				m, _ := a.pd.Register(src.Bytes()[8:],
					everyRight)
				_ = m.Deregister()
			},
		} {
			f()
			require.Zero(t, testing.AllocsPerRun(100, f), "%s, %+v", name, o)
		}
	}
}

// Ordinary memory and memory of Alloc that is registered once more: the latter is reached as directly.
func TestRegister_MemoryOfAllocIsReachedDirectly(t *testing.T) {
	a, b := couple(t, Options{})
	m := b.alloc(t, 100)
	part, err := b.pd.Register(m.Bytes()[10:50], everyRight&^transport.RemoteAtomic)
	require.NoError(t, err)
	src := a.alloc(t, 40)
	for i := range src.Bytes() {
		src.Bytes()[i] = byte(i + 1)
	}
	require.NoError(t, a.qp.PostSend(writeOf(src, part, 40)))
	require.Equal(t, src.Bytes(), m.Bytes()[10:50]) // though the peer is not driven
	require.NoError(t, part.Deregister())
	require.NotZero(t, m.Bytes()[10], "the memory is its owner's still")
}

// A queue that overruns as requests of its own complete ends its queue pairs, and nothing is touched after
// that.
func TestOverrun_ByOnesOwnRequests(t *testing.T) {
	a, b := couple(t, Options{})
	wr := writeOf(a.alloc(t, 64), b.alloc(t, 64), 64)
	wr.Flags = transport.FlagSignaled
	for i := range 1024 {
		require.NoError(t, a.qp.PostSend(wr), "Write %d", i)
	}
	require.NoError(t, a.qp.PostSend(wr))
	require.ErrorIs(t, a.qp.Err(), transport.ErrOverrun)
	for b.qp.State() != transport.StateError {
		b.cq.Poll(nil)
	}
}
