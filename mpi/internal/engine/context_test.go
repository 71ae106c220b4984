package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFreeContext: what was sent in a context that is not used any more is released, whether it came before or
// after: its sends complete, and nothing of it stays. What a matched probe has taken, or a posted receive, is
// received as usual.
func TestFreeContext(t *testing.T) {
	const context = 8
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		buf := make([]byte, 100_000)
		pattern(buf, 0, 1)
		send := func(tag int) (open []Request) {
			for _, begin := range []func() (Request, error){
				func() (Request, error) { return w[0].Sends.Isend(context, buf[:100], 1, tag) },
				func() (Request, error) { return w[0].Sends.Isend(context, buf, 1, tag) },
				func() (Request, error) { return w[0].Sends.Issend(context, nil, 1, tag) },
				func() (Request, error) {
					return w[0].Sends.IsendVec(context,
						[][]byte{buf[:70_000], buf[:10], buf}, 1, tag)
				},
				func() (Request, error) {
					return w[0].Sends.IsendVec(context, [][]byte{buf[:600], buf[:600]}, 1,
						tag)
				},
				func() (Request, error) { return w[1].Sends.Issend(context, buf[:9], 1, tag) },
			} {
				r, err := begin()
				require.NoError(t, err)
				open = append(open, r)
			}
			return open
		}
		owner := func(i int) *Engine { return w[i/5] } // of the requests that send gives
		done := func(open []Request) {
			t.Helper()
			drive(t, w, func() bool {
				for i, r := range open {
					if !owner(i).isDone(r) {
						return false
					}
				}
				return true
			})
			for i, r := range open {
				_, err := owner(i).Requests.Wait(r)
				require.NoError(t, err)
			}
		}
		first := send(1)
		large, err := w[0].Sends.Isend(context, buf, 1, 2)
		require.NoError(t, err)
		in, late := make([]byte, len(buf)), make([]byte, 100)
		drive(t, w, func() bool { return unexpected(w[1]) == 7 })
		m, _, ok, err := w[1].Probes.Improbe(context, 0, 2)
		require.NoError(t, err)
		require.True(t, ok)
		posted, err := w[1].Recvs.Irecv(context, late, 0, 3, 1)
		require.NoError(t, err)

		w[1].FreeContext(context)
		require.Zero(t, unexpected(w[1]))
		done(first)
		second := send(1)
		last, err := w[0].Sends.Isend(context, buf[:100], 1, 3)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[1].isDone(posted) })
		require.Equal(t, 1, unexpected(w[1]), "the message to itself, sent after Retire, as no program can")
		w[1].FreeContext(context)
		done(second)
		require.NoError(t, checkPattern(late, 0, 1))
		_, err = w[0].Requests.Wait(last)
		require.NoError(t, err)
		r, err := w[1].Probes.Imrecv(m, in, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[1].isDone(r) && w[0].isDone(large) })
		require.NoError(t, checkPattern(in, 0, 1))
		require.Zero(t, w[1].Stats().Kept)
		require.Zero(t, unexpected(w[1]))
		require.Zero(t, outstanding(w[0], 1))
		require.Empty(t, w[1].peers[0].announcedUnexpected)

		w[1].ReuseContext(context)
		_, err = w[0].Sends.Isend(context, buf[:100], 1, 4)
		require.NoError(t, err)
		drive(t, w, func() bool { return unexpected(w[1]) == 1 })
		require.Empty(t, w[1].unexpected.freedContexts)
	})
}
