package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
)

// undecided is a world in which no source of a receive is ever decided.
func undecided(t *testing.T, n int) []*Engine {
	t.Helper()
	return worldOf(t, simDevices(1, n), Config{
		Decided: func(int) (int, bool) { return 0, false }, Hook: &Hook{Tell: func(Event) {}},
	})
}

// A receive that waited for one that has failed with its peer, and whose message is there, succeeds.
func TestChoices_AMessageOfAFailedPeerIsReceived(t *testing.T) {
	w := undecided(t, 2)
	connected(t, w)
	first, err := w[0].Recvs.Irecv(world0, make([]byte, 8), AnySource, 1, 1)
	require.NoError(t, err)
	buf := make([]byte, 8)
	second, err := w[0].Recvs.Irecv(world0, buf, 1, 1, 1)
	require.NoError(t, err)
	require.NoError(t, w[1].Sends.Send(world0, []byte("it came!"), 0, 1))
	drive(t, w, func() bool { return unexpected(w[0]) == 1 })

	w[0].mu.Lock()
	require.Len(t, w[0].Choices.held, 2)
	w[0].failures.failPeer(w[0].peerLocked(1), transport.ErrPeerLost)
	require.Empty(t, w[0].Choices.held)
	w[0].mu.Unlock()
	_, err = w[0].Requests.Wait(first)
	require.ErrorIs(t, err, transport.ErrPeerLost)
	st, err := w[0].Requests.Wait(second)
	require.NoError(t, err)
	require.Equal(t, 8, st.Bytes)
	require.Equal(t, "it came!", string(buf))
}

// A receive whose source is undecided can be cancelled and freed: nobody waits for its message.
func TestChoices_CancelAndFree(t *testing.T) {
	e := undecided(t, 1)[0]
	r, err := e.Recvs.Irecv(world0, make([]byte, 8), AnySource, 1, 1)
	require.NoError(t, err)
	freed := make(chan struct{})
	go func() {
		defer close(freed)
		e.Cancels.CancelAndFree(r)
	}()
	select {
	case <-freed:
	case <-time.After(time.Minute):
		t.Error("it waits for a message")
		e.hub.Fail(ErrAborted)
		<-freed
	}
	require.Empty(t, e.Choices.held)
	require.Nil(t, e.Requests.find(r))
}

// A probe gets one number, although the check that finds its message, before it sleeps, is repeated.
func TestChoices_AProbeIsNumberedOnce(t *testing.T) {
	checks, numbered := 0, 0
	e := worldOf(t, simDevices(1, 2), Config{
		Decided: func(int) (int, bool) {
			if checks++; checks <= 2 { // those before and after a pass
				return 1, true
			}
			return 0, true
		},
		Hook: &Hook{Tell: func(v Event) {
			if v.Kind == EventChoice {
				numbered++
			}
		}},
	})[0]
	e.waiting.maxYields = 0 // it sleeps after one pass
	require.NoError(t, e.Sends.Send(world0, []byte("here"), 0, 1))
	st, err := e.Probes.Probe(world0, AnySource, 1, nil)
	require.NoError(t, err)
	require.Equal(t, 0, st.Source)
	require.GreaterOrEqual(t, checks, 3, "it was found before it would have slept: nothing is tested")
	require.Equal(t, 1, numbered)
	require.Equal(t, 1, e.Choices.number)
}
