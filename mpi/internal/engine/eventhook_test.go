package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Test_HookIsToldOfCallsAndMatches: a message between two ranks shows as the calls and the match.
func Test_HookIsToldOfCallsAndMatches(t *testing.T) {
	w := loopWorld(t)
	var mu sync.Mutex
	var events [2][]Event
	for i, e := range w {
		e.mu.Lock()
		e.hook = &Hook{Tell: func(v Event) {
			mu.Lock()
			defer mu.Unlock()
			events[i] = append(events[i], v)
		}}
		e.mu.Unlock()
	}
	h, err := w[1].Recvs.Irecv(0, make([]byte, 8), 0, 5, 1)
	require.NoError(t, err)
	require.NoError(t, w[0].Sends.Send(0, make([]byte, 8), 1, 5))
	_, err = w[1].Requests.Wait(h)
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	kinds := func(list []Event, of EventKind) (found []Event) {
		for _, v := range list {
			if v.Kind == of {
				found = append(found, v)
			}
		}
		return found
	}
	require.Equal(t, Event{Kind: EventCallBegin, Call: CallSend, Bytes: 8}, events[0][0])
	require.Len(t, kinds(events[0], EventCallEnd), 1)
	require.Equal(t, []Event{{Kind: EventSent, Peer: 1, Tag: 5, Bytes: 8}}, kinds(events[0], EventSent))
	require.Equal(t, []Event{{Kind: EventMatch, Peer: 0, Tag: 5, Bytes: 8}}, kinds(events[1], EventMatch))
	calls := kinds(events[1], EventCallEnd)
	require.Len(t, calls, 2)
	require.Equal(t, []Call{CallIrecv, CallWait}, []Call{calls[0].Call, calls[1].Call})
	require.Positive(t, calls[1].Elapsed)
}
