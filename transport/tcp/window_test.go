package tcp

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

const windowRights = transport.RemoteRead | transport.RemoteWrite | transport.RemoteAtomic

// A socket that takes only part of what was made sends the cursor back over requests that are carried out
// already: they are not carried out again.
func TestWindow_CarriedOutOnceWhenTheCursorGoesBack(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	src, err := s.pd.Alloc(4<<20, transport.LocalWrite|transport.BindWindow)
	require.NoError(t, err)
	first, err := s.pd.AllocMW()
	require.NoError(t, err)
	second, err := s.pd.AllocMW()
	require.NoError(t, err)
	bind := func(w transport.MW) *transport.SendWR {
		return &transport.SendWR{ID: 1, Op: transport.OpBind,
			Flags: transport.FlagSignaled | transport.FlagMore,
			Bind:  &transport.Bind{Window: w, MR: src, Length: 64, Access: windowRights}}
	}
	require.NoError(t, s.qp.PostSend(bind(first)))
	s.qp.Flush()
	s.poll()
	require.Len(t, s.wcs, 1)

	large := &transport.SendWR{ID: 2, Op: transport.OpSend,
		Flags: transport.FlagSignaled | transport.FlagMore,
		Local: []transport.SGE{{MR: src, Length: 1 << 20}}}
	require.NoError(t, s.qp.PostSend(large))
	require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 3, Op: transport.OpInvalidate,
		Flags: transport.FlagSignaled | transport.FlagMore,
		Key:   first.Key()}))
	require.NoError(t, s.qp.PostSend(bind(second)))
	require.NoError(t, s.qp.PostSend(large))
	w := s.qp.SQ.At(s.qp.SQ.Head + 1)
	place := s.qp.SQ.Head + 1
	require.Equal(t, transport.OpInvalidate, w.Op)
	s.qp.Flush()
	struck := false
	b := make([]byte, 64<<10)
	for len(s.wcs) < 5 && s.qp.State() == transport.StateReady {
		n, err := syscall.Read(s.wire, b)
		require.NoError(t, err)
		require.NotZero(t, n)
		s.poll()
		struck = struck || w.Ended && w.ID == 3 && int32(s.qp.at.next-place) <= 0
	}
	require.True(t, struck, "the cursor never went back over a request that was carried out")
	require.NoError(t, s.qp.Err())
	for i, id := range []uint64{1, 2, 3, 1, 2} {
		require.Equal(t, id, s.wcs[i].ID)
		require.Equal(t, transport.StatusSuccess, s.wcs[i].Status)
	}
	require.Zero(t, first.Key())
	require.NotNil(t, s.qp.PD.Window(&s.qp.Windows, second.Key()))
	require.ErrorContains(t, src.Deregister(), "1 windows are bound")
}

// The responder of a connection sends nothing before it has heard the initiator. What it carries out here
// does not wait for that.
func TestWindow_BoundBeforeTheFirstFrame(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, false)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.LocalWrite|transport.BindWindow)
	require.NoError(t, err)
	w, err := s.pd.AllocMW()
	require.NoError(t, err)
	require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 1, Op: transport.OpBind,
		Flags: transport.FlagSignaled | transport.FlagMore,
		Bind:  &transport.Bind{Window: w, MR: m, Length: 64, Access: windowRights}}))
	s.poll()
	require.Len(t, s.wcs, 1)
	require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 2, Op: transport.OpSend,
		Flags: transport.FlagSignaled}))
	require.NoError(t, s.qp.PostSend(&transport.SendWR{ID: 3, Op: transport.OpInvalidate,
		Flags: transport.FlagSignaled, Key: w.Key()}))
	s.poll()
	require.Len(t, s.wcs, 1, "what is after a Send waits for it")
	require.NotZero(t, w.Key())
	s.says(t, frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil))
	require.Len(t, s.wcs, 3)
	require.Zero(t, w.Key())
}

// A Send with invalidate is the frames of the Send, none of them the last, and then the Invalidate.
func TestWindow_FramesOfASendWithInvalidate(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	src, err := s.pd.Alloc(frame.MaxPayload+1, 0)
	require.NoError(t, err)
	s.heard(t)
	for i, size := range []int{0, 1, frame.MaxPayload, frame.MaxPayload + 1} {
		require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpSendInvalidate,
			Flags: transport.FlagSolicited, Key: 77,
			Local: []transport.SGE{{MR: src, Length: size}}}))
		frames := s.heard(t)
		last := len(frames) - 1
		at := 0
		for _, f := range frames[:last] {
			require.Equal(t, frame.Header{Length: f.Length, Op: frame.Send, A: uint64(i), B: uint64(at)}, f.Header)
			at += f.Length
		}
		require.Equal(t, size, at)
		require.Equal(t, frame.Header{Op: frame.Invalidate, Flags: frame.Last | frame.Solicited, A: uint64(i), B: 77},
			frames[last].Header)
	}
}

// An entry of the table that a window had can serve a region, and the other way round; neither is found by
// the other's keys.
func TestWindow_EntriesAreUsedAgain(t *testing.T) {
	s := newSessionDevice(t)
	s.begin(t, true)
	defer s.end(t)
	m, err := s.pd.Alloc(64, transport.LocalWrite|transport.BindWindow)
	require.NoError(t, err)
	keys := map[transport.Key]bool{}
	for range 300 {
		w, err := s.pd.AllocMW()
		require.NoError(t, err)
		require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpBind,
			Bind: &transport.Bind{Window: w, MR: m, Offset: 8, Length: 8, Access: transport.RemoteRead}}))
		key := w.Key()
		r, err := s.qp.PD.Find(&s.qp.Windows, key, transport.RemoteRead, 0, 8)
		require.NoError(t, err)
		require.Equal(t, &m.Bytes()[8], &r.Mem[0])
		_, err = s.qp.PD.Find(&s.qp.Windows, key, transport.RemoteRead, 1, 8)
		require.ErrorIs(t, err, transport.ErrAccess)
		require.NoError(t, w.Deallocate())
		again, err := s.pd.Register(make([]byte, 64), transport.RemoteRead)
		require.NoError(t, err)
		require.Equal(t, verbs.Index(key), verbs.Index(again.Key()), "the same entry")
		for _, k := range []transport.Key{key, 0} {
			_, err = s.qp.PD.Find(&s.qp.Windows, k, transport.RemoteRead, 0, 8)
			require.ErrorIs(t, err, transport.ErrAccess)
		}
		require.False(t, keys[key] || keys[again.Key()])
		keys[key], keys[again.Key()] = true, true
		require.NoError(t, again.Deregister())
	}
	require.Less(t, s.dev.Regions.Len(), 4)
}
