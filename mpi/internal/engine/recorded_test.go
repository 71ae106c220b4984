package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
)

// recorded has an engine write its events where the function that it returns can read them.
func recorded(t *testing.T, e *Engine) func() string {
	ring, fd, err := recorder.NewRing()
	if err != nil {
		t.Skip(err)
	}
	r, err := recorder.Open(fd)
	require.NoError(t, err)
	require.NoError(t, sys.CloseFD(fd))
	e.mu.Lock()
	e.recorder = r
	e.mu.Unlock()
	t.Cleanup(func() { require.NoError(t, ring.Close()) })
	return func() string {
		var b strings.Builder
		require.NoError(t, recorder.Dump(&b, ring.Copy(), recorder.Origin{Size: 2}))
		return b.String()
	}
}

// A burst is recorded with its number of messages at both ends, whatever of it shares a slot, and whether or
// not it is expected.
func TestRecorder_CountsTheMessagesOfABurst(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		const burst = 100
		sent, received := recorded(t, w[0]), recorded(t, w[1])
		ranks(t, w, func(e *Engine) error {
			in := make([]byte, 8)
			if e == w[1] {
				var rs [burst]Request
				for i := range rs {
					rs[i], _ = e.Recvs.Irecv(world0, in, 0, 5, 1)
				}
				require.NoError(t, e.Sends.Send(world0, in, 0, 4))
				for _, r := range rs {
					_, err := e.Requests.Wait(r)
					require.NoError(t, err)
				}
				return nil
			}
			var st Status
			require.NoError(t, e.Recvs.Recv(world0, in, 1, 4, 1, &st))
			var ss [burst]Request
			for i := range ss {
				ss[i], _ = e.Sends.Isend(world0, in, 1, 5)
			}
			for _, s := range ss {
				_, err := e.Requests.Wait(s)
				require.NoError(t, err)
			}
			return nil
		})
		require.Equal(t, burst, counted(t, sent(), "sent to 1, tag 5, 8 bytes"))
		require.Equal(t, burst, counted(t, received(), "received from 0, tag 5, 8 bytes"))
	})
}

// counted is how many events a dump has of a text, with those that it only counts.
func counted(t *testing.T, dump, text string) (n int) {
	t.Helper()
	var runs []int // how many events with the text each has
	for _, line := range strings.Split(dump, "\n") {
		_, event, _ := strings.Cut(line, " ")
		event = strings.TrimLeft(event, "~ ")
		more, last := 0, len(runs)-1
		if _, err := fmt.Sscanf(event, "the same, %d times more", &more); err == nil {
			runs[last] *= 1 + more
			continue
		}
		if _, err := fmt.Sscanf(event, "these two in turn, %d events more", &more); err != nil {
			if _, err = fmt.Sscanf(event, "these two series in turn, %d series more", &more); err != nil {
				runs, more = append(runs, strings.Count(event, text)), 0
			}
		}
		for range more {
			runs = append(runs, runs[len(runs)-2])
		}
	}
	for _, events := range runs {
		n += events
	}
	return n
}

// A receive is recorded when somebody sleeps for it: so the record of a rank that hangs says for what.
func TestRecorder_SaysWhatASleeperWaitsFor(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		if simulated(w) {
			t.Skip("its ranks do not sleep alone")
		}
		events := recorded(t, w[1])
		ranks(t, w, func(e *Engine) error {
			in := make([]byte, 8)
			if e == w[1] {
				var st Status
				return e.Recvs.Recv(world0, in, 0, 9, 1, &st)
			}
			require.Eventually(t, func() bool { return strings.Contains(events(), "sleeps") }, 2*time.Minute,
				time.Millisecond)
			before, _, _ := strings.Cut(events(), "sleeps")
			require.Contains(t, before, "receive waits from 0, tag 9, 8 bytes")
			return e.Sends.Send(world0, in, 1, 9)
		})
	})
}
