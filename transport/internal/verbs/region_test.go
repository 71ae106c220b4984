package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// heap is the memory of a provider whose regions lie on the Go heap.
type heap struct {
	closed bool
	freed  int
}

func (h *heap) Closed() bool                                  { return h.closed }
func (h *heap) NewEntry(int) error                            { return nil }
func (h *heap) Map(n int, _ transport.Access) ([]byte, error) { return make([]byte, n), nil }
func (h *heap) Publish(*Region, uint32, transport.Key)        {}
func (h *heap) Registered(*Region)                            {}

func (h *heap) Revoke(_ *Region, owned, leave bool) error {
	if owned && !leave {
		h.freed++
	}
	return nil
}

func noAttr() transport.DeviceAttr { return transport.DeviceAttr{} }

func TestTable_EveryRegistrationHasItsOwnKey(t *testing.T) {
	table := NewTable(&heap{}, noAttr)
	p := domain(t, table)
	keys := map[transport.Key]bool{}
	for range 1000 {
		r, err := p.Register(make([]byte, 8), transport.RemoteRead)
		require.NoError(t, err)
		require.False(t, keys[r.Key()])
		keys[r.Key()] = true
		_, err = p.Find(r.Key(), transport.RemoteRead, 0, 8)
		require.NoError(t, err)
		require.NoError(t, r.Deregister())
		for k := range keys {
			_, err = p.Find(k, transport.RemoteRead, 0, 8)
			require.ErrorIs(t, err, transport.ErrAccess)
		}
	}
	require.Equal(t, 1, table.Len())
}

func TestTable_MemoryIsFreedOnceUnlessItIsLeft(t *testing.T) {
	h := &heap{}
	table := NewTable(h, noAttr)
	p := domain(t, table)
	list := make([]transport.MR, 3)
	for i := range list {
		var err error
		list[i], err = p.Alloc(8, transport.RemoteWrite)
		require.NoError(t, err)
	}
	require.NoError(t, list[0].Deregister())
	require.ErrorIs(t, list[0].Deregister(), transport.ErrInvalid)
	require.NoError(t, list[1].Detach())
	require.Equal(t, 1, h.freed)
	require.NoError(t, table.Close())
	require.Equal(t, 2, h.freed)
	h.closed = true
	_, err := p.Alloc(8, 0)
	require.ErrorIs(t, err, transport.ErrDeviceGone)
}

// What is done after a request that is not is flushed too, and each request completes once.
func TestFlush_NothingSucceedsAfterAFailure(t *testing.T) {
	var sq SendQueue
	var rq RecvQueue
	for i := range 5 {
		require.True(t, sq.Post(&transport.SendWR{ID: uint64(i), Op: transport.OpSend}, 0, 5))
		sq.At(uint32(i)).Done = i > 0
		require.True(t, rq.Post(&transport.RecvWR{ID: uint64(10 + i), Notify: i == 0}, 5))
	}
	require.False(t, sq.Post(&transport.SendWR{Op: transport.OpSend}, 0, 5))
	var send, recv completions
	Flush(&sq, &rq, &send, &recv, transport.StatusFatal, func(id uint64, op transport.Opcode) transport.WC {
		return transport.WC{ID: id, Op: op, Status: transport.StatusFlushed}
	})
	require.Len(t, send.list, 5)
	require.Len(t, recv.list, 5)
	require.Equal(t, 1, recv.events)
	for i, wc := range send.list {
		require.Equal(t, uint64(i), wc.ID)
		want := transport.StatusFlushed
		if i == 0 {
			want = transport.StatusFatal
		}
		require.Equal(t, want, wc.Status)
	}
}

type completions struct {
	list   []transport.WC
	events int
}

func (c *completions) Push(wc transport.WC) { c.list = append(c.list, wc) }
func (c *completions) Raise()               { c.events++ }

func domain(t *testing.T, table *Table) *PD {
	p, err := table.AllocPD()
	require.NoError(t, err)
	return p.(*PD)
}
