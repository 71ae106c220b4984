package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/shm"
)

// TestSendAfterCredits: a send to a full ring goes at once when the peer, who shares our memory, has given room back,
// with a message of its own, too, which is received once all the same; it is announced if the peer wants that
// by now. Now and then a pass is made for it. Where ranks share cores it is queued: the peer needs the
// processor.
func TestSendAfterCredits(t *testing.T) {
	for _, c := range []struct {
		name             string
		spinFor          time.Duration
		answered, paused bool
		due, queued      bool
		announced        int
	}{
		{name: "a core for each rank", spinFor: time.Second},
		{name: "with a message", spinFor: time.Second, answered: true},
		{name: "and a wish", spinFor: time.Second, paused: true, announced: 1},
		{name: "for a pass", spinFor: time.Second, due: true},
		{name: "shared cores", queued: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := worldOf(t, fabrics["sim"](t, 9, 2), Config{SpinTime: c.spinFor})
			locked := func(f func() bool) bool {
				w[0].mu.Lock()
				defer w[0].mu.Unlock()
				return f()
			}
			buf := make([]byte, 500)
			pattern(buf, 0, 1)
			send := func() Request {
				r, err := w[0].Sends.Isend(world0, buf, 1, 1)
				require.NoError(t, err)
				return r
			}
			connected(t, w)
			p := w[0].peers[1]
			locked(func() bool { p.polled = true; return true })
			var sends []Request
			for range smallRingHolds {
				sends = append(sends, send())
				require.False(t, p.queued())
			}
			var wcs [8]transport.WC
			deliver := func() bool { // and look at nothing that comes
				return locked(func() bool {
					w[0].coalescer.flush()
					require.Zero(t, w[0].fabrics[0].cq.Poll(wcs[:]))
					return p.ch.Ready()
				})
			}
			if c.paused {
				w[1].peers[0].ch.RefusePayload(true)
			}
			got := make([]byte, len(buf))
			for range sends {
				r, err := w[1].Recvs.Irecv(world0, got, 0, 1, 1)
				require.NoError(t, err)
				drive(t, w[1:], func() bool { deliver(); return w[1].isDone(r) })
				_, err = w[1].Requests.Wait(r)
				require.NoError(t, err)
				require.Equal(t, buf, got)
			}
			var answer Request
			if c.answered {
				var err error
				answer, err = w[1].Sends.Isend(world0, []byte("got it"), 0, 2)
				require.NoError(t, err)
			}
			passes := 0
			// all the credit, not only the first
			drive(t, w[1:], func() bool { passes++; return deliver() && passes > 100 })
			if c.due {
				w[0].Sends.creditSpins = directRecvInterval - 1
			}
			before := w[0].stats.Passes
			sends = append(sends, send())
			require.Equal(t, c.due, w[0].stats.Passes > before)
			require.Equal(t, c.queued, p.queued(), "%+v", p.ch.Stats())
			require.EqualValues(t, c.announced, p.stats.Rendezvous)

			finish := func(e *Engine, h Request) {
				drive(t, w, func() bool { return e.isDone(h) })
				_, err := e.Requests.Wait(h)
				require.NoError(t, err)
			}
			r, err := w[1].Recvs.Irecv(world0, got, 0, 1, 1)
			require.NoError(t, err)
			finish(w[1], r)
			require.Equal(t, buf, got)
			if c.answered {
				n, ok := w[0].RecvNext(world0, got, 1, 2)
				if !ok { // it has been kept by a pass
					r, err := w[0].Recvs.Irecv(world0, got, 1, 2, 1)
					require.NoError(t, err)
					finish(w[0], r)
					n = len("got it")
				}
				require.Equal(t, "got it", string(got[:n]))
				finish(w[1], answer)
				_, found, err := w[0].Probes.Iprobe(world0, 1, AnyTag)
				require.NoError(t, err)
				require.False(t, found, "it came once")
			}
			for _, h := range sends {
				finish(w[0], h)
			}
		})
	}
}

// smallRingHolds is how many messages of 500 bytes the first ring of a channel has room for: 80 lines hold 9
// lines of each, and 12 stay free.
const smallRingHolds = 7

// TestSendAfterCredits_APassSendsWhatIsCoalesced: the send that finds room after a pass is not held back any more, or
// nobody would send it on when the rank goes off to compute.
func TestSendAfterCredits_APassSendsWhatIsCoalesced(t *testing.T) {
	w := loopWorld(t)
	withoutTimers(w)
	buf := make([]byte, 500)
	send := func() {
		r, err := w[0].Sends.Isend(world0, buf, 1, 1)
		require.NoError(t, err)
		drive(t, w[:1], func() bool { return w[0].isDone(r) }) // the first waits for the connection
		_, err = w[0].Requests.Wait(r)
		require.NoError(t, err)
	}
	send()
	p := w[0].peers[1]
	n := 1
	for ; n < smallRingHolds; n++ {
		send()
	}
	for range n {
		r, err := w[1].Recvs.Irecv(world0, make([]byte, len(buf)), 0, 1, 1)
		require.NoError(t, err)
		drive(t, w[1:], func() bool { return w[1].isDone(r) })
		_, err = w[1].Requests.Wait(r)
		require.NoError(t, err)
	}
	passes := 0
	drive(t, w[1:], func() bool { passes++; return passes > 100 })
	w[0].Sends.creditSpins, p.burst.previous = directRecvInterval-1, longBurst
	_, err := w[0].Sends.Isend(world0, buf, 1, 1)
	require.NoError(t, err)
	require.True(t, w[0].coalescer.pending)
	require.Equal(t, 1, p.batch.Count(), "the next one does not fit its slot")
	q := p.ch.QP().(*loopQP)
	q.plain = true
	send()
	require.False(t, w[0].coalescer.pending)
	require.NotEmpty(t, q.posts)
	require.Zero(t, q.posts[len(q.posts)-1]&transport.FlagMore)
}

// TestSendAfterCredits_AReceiveTakesThem: the credit that a receive finds while it polls the ring itself lets the
// messages go that have waited for it, queued or in a batch. No pass sees that credit.
func TestSendAfterCredits_AReceiveTakesThem(t *testing.T) {
	for _, batched := range []bool{false, true} {
		w := worldOf(t, fabrics["sim"](t, 9, 2), Config{SpinTime: time.Second})
		connected(t, w)
		withoutTimers(w)
		p := w[0].peers[1]
		w[0].mu.Lock()
		p.polled = true
		w[0].mu.Unlock()
		n := 500
		if batched {
			n = eager.MaxBatched
		}
		buf, got := make([]byte, n), make([]byte, n)
		pattern(buf, 0, 1)
		var wcs [8]transport.WC
		carry := func() { // without a look at what comes
			w[0].mu.Lock()
			defer w[0].mu.Unlock()
			w[0].coalescer.flush()
			require.Zero(t, w[0].fabrics[0].cq.Poll(wcs[:]))
		}
		for sends := 0; !p.sendPending(); carry() {
			require.Less(t, sends, 100)
			for range 2 { // of a burst, all but the first may be batched
				_, err := w[0].Sends.Isend(world0, buf, 1, 1)
				require.NoError(t, err)
				sends++
			}
		}
		require.Equal(t, batched, p.batch.Count() > 0)
		for received := 0; p.sendPending(); received++ {
			require.Less(t, received, 50)
			_, err := w[1].Recvs.Irecv(world0, got, 0, 1, 1)
			require.NoError(t, err)
			passes := 0
			drive(t, w[1:], func() bool { carry(); passes++; return passes > 20 })
			_, ok := w[0].RecvNext(world0, got, 1, 2)
			require.False(t, ok, "there is only credit")
		}
		require.False(t, p.sendPending())
	}
}

// TestCreditsTakenByPolls: the credit that a receive or a send finds while it polls the ring itself lets a
// WITHDRAW go that has waited for it. No pass sees that credit, and the peer has nothing else to send.
func TestCreditsTakenByPolls(t *testing.T) {
	for name, take := range map[string]func(e *Engine){
		"Recv": func(e *Engine) {
			_, ok := e.RecvNext(world0, make([]byte, 8), 1, 2)
			require.False(t, ok, "there is only credit")
		},
		"Send": func(e *Engine) {
			require.NoError(t, e.Sends.Send(world0, make([]byte, 500), 1, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, shmDevices(t, 2, shm.Options{}), Config{SpinTime: time.Second})
			connected(t, w)
			withoutTimers(w)
			announce := func() Request {
				r, err := w[0].Sends.Issend(world0, nil, 1, 1)
				require.NoError(t, err)
				return r
			}
			first, last := announce(), Request{}
			for queued(w[0], 1) == 0 {
				last = announce()
			}
			require.NoError(t, w[0].Cancels.Cancel(last))
			require.True(t, w[0].isDone(last))
			require.NoError(t, w[0].Cancels.Cancel(first))
			passes := 0 // all the credit, not only the first
			drive(t, w[1:], func() bool { passes++; return passes > 100 && w[0].peers[1].ch.Ready() })
			take(w[0])
			require.False(t, w[0].peers[1].ch.Ready())
			drive(t, w, func() bool { return w[0].isDone(first) })
			st, err := w[0].Requests.Wait(first)
			require.NoError(t, err)
			require.True(t, st.Cancelled)
		})
	}
}
