package engine

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/eager"
)

// grown has both engines of a world send each other a message that needs larger slots.
func grown(t *testing.T, w []*Engine) {
	for me := range w {
		r, err := w[me].Isend(world0, make([]byte, 2000), 1-me, 9)
		require.NoError(t, err)
		got, err := w[1-me].Irecv(world0, make([]byte, 2000), me, 9, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[me].isDone(r) && w[1-me].isDone(got) })
		_, err = w[me].Wait(r)
		require.NoError(t, err)
		_, err = w[1-me].Wait(got)
		require.NoError(t, err)
	}
}

// TestPieces_E5_ArriveAsTheyWereSent: windows of messages of any length up to what a slot takes, to a peer who has posted all, some, or none of the receives, and who reads
// meanwhile or not. Every message comes once, whole, and in order; those of middling size have gone in pieces, and some had to wait for room in the middle.
func TestPieces_E5_ArriveAsTheyWereSent(t *testing.T) {
	w := loopWorld(t)
	grown(t, w)
	p := w[0].peers[1]
	cut, begun := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 3))
		const window = 40
		var sends, recvs [window]Request
		var sizes [window]int
		var got [window][]byte
		for i := range sizes {
			if sizes[i] = rng.IntN(16000); seed%2 == 0 {
				sizes[i] = rng.IntN(5000)
			}
			got[i] = make([]byte, sizes[i])
		}
		post := func(i int) {
			var err error
			recvs[i], err = w[1].Irecv(world0, got[i], 0, 1, 1)
			require.NoError(t, err)
		}
		posted := rng.IntN(3) * window / 2 // all, half of them, none
		for i := range posted {
			post(i)
		}
		reads := rng.IntN(3) // never, now and then, often
		for i, n := range sizes {
			buf := make([]byte, n)
			pattern(buf, 0, i)
			before := p.ch.Stats().Sent
			var err error
			sends[i], err = w[0].Isend(world0, buf, 1, 1)
			require.NoError(t, err)
			if sent := int(p.ch.Stats().Sent - before); sent == (n+eager.PieceLen-1)/eager.PieceLen && sent > 1 {
				cut++
			}
			if r := w[0].requests.find(sends[i]); r != &w[0].requests.sent && r.msg.Begun() && !r.completed() {
				begun++
			}
			for range reads * rng.IntN(3) {
				w[1].mu.Lock()
				w[1].pass()
				w[1].mu.Unlock()
			}
		}
		for i := posted; i < window; i++ {
			post(i)
		}
		for i := range window {
			drive(t, w, func() bool { return w[0].isDone(sends[i]) && w[1].isDone(recvs[i]) })
			_, err := w[0].Wait(sends[i])
			require.NoError(t, err)
			st, err := w[1].Wait(recvs[i])
			require.NoError(t, err)
			require.Equal(t, sizes[i], st.Bytes)
			require.NoError(t, checkPattern(got[i], 0, i), "seed %d, message %d of %d bytes", seed, i, sizes[i])
		}
	}
	require.Greater(t, cut, 1000)
	require.Greater(t, begun, 30)
}

func TestPieces_TruncatedAndCancelled(t *testing.T) {
	w := loopWorld(t)
	grown(t, w)
	buf, short := make([]byte, 8000), make([]byte, 3000)
	pattern(buf, 0, 1)
	var sends []Request
	for len(sends) == 0 || w[0].isDone(sends[len(sends)-1]) {
		r, err := w[0].Isend(world0, buf, 1, 1)
		require.NoError(t, err)
		sends = append(sends, r)
	}
	last := sends[len(sends)-1]
	require.True(t, w[0].requests.find(last).msg.Begun())
	require.NoError(t, w[0].Cancel(last))
	require.False(t, w[0].isDone(last), "a part of it has gone")
	for range sends {
		r, err := w[1].Irecv(world0, short, 0, 1, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[1].isDone(r) })
		st, err := w[1].Wait(r)
		require.ErrorIs(t, err, ErrTruncate)
		require.Equal(t, len(short), st.Bytes)
		require.Equal(t, buf[:len(short)], short)
	}
	drive(t, w, func() bool { return w[0].isDone(last) })
	st, err := w[0].Wait(last)
	require.NoError(t, err)
	require.False(t, st.Cancelled)
}

// TestPieces_APeerIsLostInTheMiddle of a message: its send fails, as does the receive that had matched it.
func TestPieces_APeerIsLostInTheMiddle(t *testing.T) {
	w := loopWorld(t)
	grown(t, w)
	buf := make([]byte, 8000)
	var last Request
	for n := 0; last == (Request{}) || w[0].isDone(last); n++ {
		r, err := w[1].Irecv(world0, make([]byte, len(buf)), 0, 1, 1)
		require.NoError(t, err)
		if last, err = w[0].Isend(world0, buf, 1, 1); w[0].isDone(last) {
			w[0].Wait(last)
		}
		require.NoError(t, err)
		defer func() { w[1].Wait(r) }()
	}
	require.True(t, w[0].requests.find(last).msg.Begun())
	lost := errors.New("gone")
	for me, e := range w {
		e.mu.Lock()
		e.failPeer(e.peers[1-me], lost)
		e.mu.Unlock()
	}
	_, err := w[0].Wait(last)
	require.ErrorIs(t, err, ErrProcFailed)
	require.ErrorIs(t, err, lost)
}
