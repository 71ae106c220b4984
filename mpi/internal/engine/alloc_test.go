package engine

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// TestAllocated finds memory by any address in it, and gives all of it back whatever the order.
func TestAllocated(t *testing.T) {
	onEach(t, 1, func(t *testing.T, w []*Engine) {
		e := w[0]
		var all [][]byte
		for i := range 50 {
			b, err := e.hub.Memory.Alloc(1 + i*1000)
			require.NoError(t, err)
			all = append(all, b)
		}
		for _, b := range all {
			for _, at := range []int{0, len(b) / 2, len(b) - 1} {
				m, _ := e.hub.Memory.find(b[at:])
				require.Same(t, &b[0], &m.bytes[0])
				require.Equal(t, transport.LocalWrite|transport.Mappable, m.mr.Access(),
					"peers have no right")
			}
			require.Nil(t, e.hub.Memory.Pin(make([]byte, 10)))
		}
		held := e.hub.Memory.Pin(all[3][1:])
		require.ErrorIs(t, e.hub.Memory.Free(all[3]), ErrBuffer)
		e.hub.Memory.Unpin(held)
		e.hub.Memory.Unpin(nil)
		for i := range all { // 0, 7, 14 …, and round again
			require.NoError(t, e.hub.Memory.Free(all[i*7%50]))
		}
		require.Empty(t, e.hub.Memory.list)
		require.Empty(t, e.hub.Memory.list)
		require.Nil(t, e.hub.Memory.Pin(all[0]))
	})
}

// A rank whose job is ending can free its memory, and gets no more.
func TestFreeAfterFail(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		b, err := w[0].hub.Memory.Alloc(100)
		require.NoError(t, err)
		r, err := w[0].Recvs.Irecv(world0, b, 1, 0, 1)
		require.NoError(t, err)
		require.ErrorIs(t, w[0].hub.Memory.Free(b), ErrBuffer)
		w[0].hub.Fail(ErrAborted)
		_, err = w[0].hub.Memory.Alloc(100)
		require.ErrorIs(t, err, ErrAborted)
		require.NoError(t, w[0].hub.Memory.Free(b), "nothing is placed in it any more")
		_, err = w[0].Requests.Wait(r)
		require.ErrorIs(t, err, ErrAborted)
	})
}

// The error of Free names the operation that uses the memory.
func TestFree_NamesTheUser(t *testing.T) {
	e := world(t, simDevices(1, 2))[0]
	for text, r := range map[string]struct{ source, tag int }{
		"a receive from rank 1 of the world with tag 5 still uses it": {1, 5},
		"a receive from any rank with tag 5 still uses it":            {AnySource, 5},
		"a receive from any rank with any tag still uses it":          {AnySource, AnyTag},
	} {
		b, err := e.hub.Memory.Alloc(100)
		require.NoError(t, err)
		h, err := e.Recvs.Irecv(world0, b, r.source, r.tag, 1)
		require.NoError(t, err)
		err = e.hub.Memory.Free(b)
		require.ErrorIs(t, err, ErrBuffer)
		require.ErrorContains(t, err, text)
		require.NoError(t, e.Cancels.Cancel(h))
		_, err = e.Requests.Wait(h)
		require.NoError(t, err)
		require.NoError(t, e.hub.Memory.Free(b))
	}
}

// BenchmarkFind is what a look-up costs that would spare a message its registration: docs/internals/adr/0008 rests on
// it.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{1, 16, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var a Allocations
			memory := make([]byte, n*128)
			for i := range n {
				a.list = append(a.list, &Memory{bytes: memory[i*128:][:100]})
			}
			i := 0
			for b.Loop() {
				i = (i + 127) % n
				if m, _ := a.find(memory[i*128+50:]); m == nil {
					b.Fatal("not found")
				}
			}
		})
	}
}

// TestAlloc_IsOfAKindThatPeersReach: without any way in for peers a provider may give memory that they cannot
// reach (transport.PD), and a message out of it would be copied as any other.
func TestAlloc_IsOfAKindThatPeersReach(t *testing.T) {
	w := loopWorld(t)
	b, err := w[0].hub.Memory.Alloc(1 << 16)
	require.NoError(t, err)
	rights := w[0].fabrics[0].pd.(*loopPD).n.rights
	require.NotZero(t, rights&transport.Mappable)
	require.Zero(t, rights&(transport.RemoteRead|transport.RemoteWrite|transport.RemoteAtomic),
		"no peer has a right to all of it")
	require.NoError(t, w[0].hub.Memory.Free(b))
}
