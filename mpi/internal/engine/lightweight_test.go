package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReceipts: the handles of sends that were complete when they began are as good as any others: each is
// used up once, in any order, by any call, and a handle of an earlier use finds nothing.
func TestReceipts(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e, p := w[0], w[1]
		const burst = 40
		var earlier []Request
		for range 3 {
			hs := make([]Request, burst)
			receipts := 0
			for i := range hs {
				var err error
				hs[i], err = e.Sends.Isend(world0, []byte{byte(i)}, 1, 7)
				require.NoError(t, err)
				if hs[i].index&lightweightBit != 0 {
					receipts++
				}
			}
			require.Greater(t, receipts, burst/2, "a burst hardly shares slots: the test shows nothing")
			for _, h := range earlier {
				_, err := e.Requests.Wait(h)
				require.ErrorIs(t, err, ErrRequest)
				require.ErrorIs(t, e.Cancels.Cancel(h), ErrRequest)
			}
			earlier = append([]Request(nil), hs...)

			last := hs[burst-1]
			require.True(t, e.Requests.Live(last))
			require.NoError(t, e.Cancels.Cancel(last), "too late, and no error")
			st, err := e.Requests.Wait(last)
			require.NoError(t, err)
			require.Equal(t, Status{}, st)
			require.False(t, e.Requests.Live(last))
			hs[burst-1] = Request{}
			_, ok, err := e.Requests.Test(hs[0])
			require.NoError(t, err)
			hs[0] = Request{}
			require.True(t, ok)
			at := func(i int) Request { return hs[i] }
			taken := 0
			take := func(i int, st *Status, err error) {
				require.NoError(t, err)
				hs[i] = Request{}
				taken++
			}
			require.Equal(t, 1, e.Requests.WaitSome(burst, at, 1, take))
			require.True(t, e.Requests.TestAll(burst, at, take))
			require.Equal(t, burst-2, taken)

			for i := range burst {
				in := make([]byte, 1)
				h, err := p.Recvs.Irecv(world0, in, 0, 7, 1)
				require.NoError(t, err)
				drive(t, w, func() bool { return p.isDone(h) })
				_, err = p.Requests.Wait(h)
				require.NoError(t, err)
				require.Equal(t, byte(i), in[0])
			}
		}
		_, err := e.Requests.Wait(Request{lightweightBit | 1<<20, 1})
		require.ErrorIs(t, err, ErrRequest, "a handle that was made up")
	})
}
