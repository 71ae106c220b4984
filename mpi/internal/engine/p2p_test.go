package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connected is a world of two whose ranks have talked. Nobody makes progress for them when it returns.
func connected(t *testing.T, w []*Engine) {
	t.Helper()
	ranks(t, w, func(e *Engine) error {
		one := make([]byte, 1)
		if e.Rank() == 0 {
			if err := e.Sends.Send(world0, one, 1, 0); err != nil {
				return err
			}
			_, err := e.recv(world0, one, 1, 0, 1)
			return err
		}
		if _, err := e.recv(world0, one, 0, 0, 1); err != nil {
			return err
		}
		return e.Sends.Send(world0, one, 0, 0)
	})
}

// drive makes progress on all engines until cond holds.
func drive(t *testing.T, w []*Engine, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); {
		for _, e := range w {
			e.mu.Lock()
			e.progress.poll()
			e.mu.Unlock()
		}
		if time.Now().After(deadline) {
			t.Fatal("it never came about")
		}
	}
}

// withoutTimers keeps the timers of delayed sends from making progress beside a test.
func withoutTimers(w []*Engine) {
	for _, e := range w {
		for stopped := false; !stopped; {
			e.mu.Lock()
			h := &e.coalescer
			if stopped = !h.armed || h.timer.Stop(); stopped {
				h.armed = true
			}
			e.mu.Unlock()
		}
	}
}

func (e *Engine) isDone(h Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.Requests.find(h)
	return r == nil || r.completed()
}

// fetching tells whether the bytes of a receive are on their way.
func (e *Engine) fetching(h Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.Requests.find(h)
	return r.peer != nil && !r.completed()
}

// outstanding is the number of messages that wait at e for the peer to fetch them.
func outstanding(e *Engine, peer int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fabrics[0].sender.Outstanding(e.peers[peer].ch)
}

// queued is the number of sends that wait at e for room.
func queued(e *Engine, peer int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.peers[peer].queue) - e.peers[peer].head
}

// unexpected is the number of messages that wait at e for a receive.
func unexpected(e *Engine) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, n := e.matching.Lengths()
	return n
}

// stuff sends messages of 8 bytes until n of them wait for room, and returns all their requests.
func stuff(t *testing.T, e *Engine, dst, tag, n int) (sent [][]byte, open []Request) {
	t.Helper()
	for queued(e, dst) < n {
		b := make([]byte, 8)
		pattern(b, 0, len(sent))
		r, err := e.Sends.Isend(world0, b, dst, tag)
		require.NoError(t, err)
		sent, open = append(sent, b), append(open, r)
		require.Less(t, len(open), 10_000, "there is always room")
	}
	return sent, open
}

// TestSynchronousSend: a synchronous send of any size is not complete while its receiver, who lives and takes
// other messages, has not received it; MPI 4.1, 3.4.
func TestSynchronousSend(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		ranks(t, w, func(e *Engine) error {
			one := make([]byte, 1)
			for seq, n := range []int{0, 1, 100, 5000, 40_000} {
				buf := make([]byte, n)
				if e.Rank() == 1 {
					// The other message comes after the synchronous one, so that one has been here for sure.
					if _, err := e.recv(world0, one, 0, 2, 1); err != nil {
						return err
					}
					if err := e.Sends.Send(world0, one, 0, 3); err != nil {
						return err
					}
					if _, err := e.recv(world0, one, 0, 4, 1); err != nil {
						return err
					}
					st, err := e.recv(world0, buf, 0, 1, 1)
					if err != nil {
						return err
					}
					if st.Bytes != n {
						return fmt.Errorf("%d bytes of %d", st.Bytes, n)
					}
					if err := checkPattern(buf, 0, seq); err != nil {
						return err
					}
					if _, err := e.recv(world0, buf, 0, 5, 1); err != nil {
						return err
					}
					continue
				}
				pattern(buf, 0, seq)
				r, err := e.Sends.Issend(world0, buf, 1, 1)
				if err != nil {
					return err
				}
				if err := e.Sends.Send(world0, one, 1, 2); err != nil {
					return err
				}
				if _, err := e.recv(world0, one, 1, 3, 1); err != nil {
					return err
				}
				if _, done, err := e.Requests.Test(r); done || err != nil {
					return fmt.Errorf("a synchronous send of %d bytes is complete without a receive (%v)",
						n, err)
				}
				if err := e.Sends.Send(world0, one, 1, 4); err != nil {
					return err
				}
				if _, err := e.Requests.Wait(r); err != nil {
					return err
				}
				if err := e.Sends.Ssend(world0, buf, 1, 5); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestSynchronousSendToSelf(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	for _, n := range []int{0, 8, 5000} {
		out, in := make([]byte, n), make([]byte, n)
		pattern(out, 0, n)
		r, err := e.Sends.Issend(world0, out, 0, 1)
		require.NoError(t, err)
		_, done, err := e.Requests.Test(r)
		require.NoError(t, err)
		require.False(t, done, "%d bytes", n)
		_, err = e.recv(world0, in, 0, 1, 1)
		require.NoError(t, err)
		require.Equal(t, out, in)
		_, done, err = e.Requests.Test(r)
		require.NoError(t, err)
		require.True(t, done)
	}
}

// TestMatchedProbe: what a matched probe has taken no other receive or probe gets, and it can be received
// once.
func TestMatchedProbe(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		ranks(t, w, func(e *Engine) error {
			for _, n := range []int{0, 100, 30_000} {
				first, second := make([]byte, n), make([]byte, n)
				if e.Rank() == 0 {
					pattern(first, 0, 1)
					pattern(second, 0, 2)
					a, err := e.Sends.Isend(world0, first, 1, 7)
					if err != nil {
						return err
					}
					if err := e.Sends.Send(world0, second, 1, 7); err != nil {
						return err
					}
					if _, err := e.Requests.Wait(a); err != nil {
						return err
					}
					// nothing more comes while rank 1 looks
					if _, err := e.recv(world0, nil, 1, 8, 1); err != nil {
						return err
					}
					continue
				}
				m, st, err := e.Probes.Mprobe(world0, AnySource, AnyTag, nil)
				require.NoError(t, err)
				require.Equal(t, Status{Source: 0, Tag: 7, Bytes: n, Elem: 1}, st)
				m2, _, err := e.Probes.Mprobe(world0, 0, 7, nil)
				require.NoError(t, err)
				_, _, ok, err := e.Probes.Improbe(world0, AnySource, AnyTag)
				require.NoError(t, err)
				require.False(t, ok, "both are taken")
				_, ok, err = e.Probes.Iprobe(world0, AnySource, AnyTag)
				require.NoError(t, err)
				require.False(t, ok, "both are taken")
				wild, err := e.Recvs.Irecv(world0, make([]byte, n), AnySource, AnyTag, 1)
				require.NoError(t, err)
				require.False(t, e.isDone(wild), "both are taken")

				st, err = e.Probes.Mrecv(m2, second, 1) // in the other order
				require.NoError(t, err)
				require.Equal(t, n, st.Bytes)
				require.NoError(t, checkPattern(second, 0, 2))
				r, err := e.Probes.Imrecv(m, first, 1)
				require.NoError(t, err)
				_, err = e.Requests.Wait(r)
				require.NoError(t, err)
				require.NoError(t, checkPattern(first, 0, 1))
				for _, m := range []Message{m, m2, {}} {
					_, err = e.Probes.Mrecv(m, first, 1)
					require.ErrorIs(t, err, ErrRequest)
				}
				require.NoError(t, e.Cancels.Cancel(wild))
				st, err = e.Requests.Wait(wild)
				require.NoError(t, err)
				require.True(t, st.Cancelled)
				require.NoError(t, e.Sends.Send(world0, nil, 0, 8))
			}
			return nil
		})
	})
}

// TestMatchedProbesOfManyGoroutines: each of them receives the very message that it asked about.
func TestMatchedProbesOfManyGoroutines(t *testing.T) {
	onEach(t, 3, func(t *testing.T, w []*Engine) {
		each, largest := 100, 20_000
		if simulated(w) {
			each, largest = 30, 3000
		}
		ranks(t, w, func(e *Engine) error {
			if e.Rank() != 0 {
				rng := rand.New(rand.NewPCG(5, uint64(e.Rank())))
				for i := range each {
					buf := make([]byte, 8+mixtureLen(rng, largest))
					pattern(buf, e.Rank(), len(buf))
					if err := e.Sends.Send(world0, buf, 0, i); err != nil {
						return err
					}
				}
				return nil
			}
			const goroutines = 4
			var wg sync.WaitGroup
			var mu sync.Mutex
			left := each * 2
			errs := make([]error, goroutines)
			for g := range goroutines {
				wg.Go(func() {
					for errs[g] == nil {
						mu.Lock()
						left--
						over := left < 0
						mu.Unlock()
						if over {
							return
						}
						m, st, err := e.Probes.Mprobe(world0, AnySource, AnyTag, nil)
						if err != nil {
							errs[g] = err
							return
						}
						buf := make([]byte, st.Bytes)
						got, err := e.Probes.Mrecv(m, buf, 1)
						if err == nil && got != st {
							err = fmt.Errorf("asked about %+v, received %+v", st, got)
						}
						if err == nil {
							err = checkPattern(buf, st.Source, st.Bytes)
						}
						errs[g] = err
					}
				})
			}
			wg.Wait()
			return errors.Join(errs...)
		})
	})
}

func handles(hs []Request) (int, func(int) Request) {
	return len(hs), func(i int) Request { return hs[i] }
}

// TestWaitsForSeveral has goroutines sleep for several requests each, and completes one of each, not the
// first: every one of them wakes with the right index. The sleepers are more than one, so most are parked and
// not in the completion queue.
func TestWaitsForSeveral(t *testing.T) {
	const sleepers = 8
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e := w[0]
		before := e.Stats().Sleeps
		var wg sync.WaitGroup
		for g := range sleepers {
			hs := make([]Request, 4)
			for i := range 3 {
				r, err := e.Recvs.Irecv(world0, make([]byte, 1), 1, 10*g+i, 1)
				require.NoError(t, err)
				hs[i+1] = r
			}
			wg.Go(func() {
				n, at := handles(hs)
				for _, expect := range []int{2, 1, 3} {
					got := -1
					taken := e.Requests.WaitSome(n, at, 1, func(i int, st *Status, err error) {
						got = i
						require.NoError(t, err)
						require.Equal(t, 10*g+expect-1, st.Tag)
						hs[i] = Request{}
					})
					require.Equal(t, 1, taken)
					require.Equal(t, expect, got)
				}
				require.Zero(t, e.Requests.WaitSome(n, at, 1, nil), "none is active")
			})
		}
		require.Eventually(t, func() bool { return e.Stats().Sleeps >= before+sleepers }, time.Minute,
			time.Millisecond)
		ranks(t, w[1:], func(p *Engine) error {
			for _, i := range []int{1, 0, 2} {
				for g := range sleepers {
					if err := p.Sends.Send(world0, []byte{1}, 0, 10*g+i); err != nil {
						return err
					}
				}
				// The next is sent when all of this round have been received, or a sleeper could find two
				// complete.
				var empty bool
				for !empty {
					e.mu.Lock()
					posted, _ := e.matching.Lengths()
					empty = posted == sleepers*map[int]int{1: 2, 0: 1, 2: 0}[i]
					e.mu.Unlock()
					p.mu.Lock()
					p.progress.poll()
					p.mu.Unlock()
				}
				if i != 2 {
					for g := range sleepers {
						for !e.collected(1, 10*g+i) {
							time.Sleep(time.Millisecond)
						}
					}
				}
			}
			return nil
		})
		wg.Wait()
	})
}

// collected tells that no request with this source and tag is complete and waits to be collected.
func (e *Engine) collected(source, tag int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.Requests.all {
		if r.kind == kindRecv && r.completed() && r.status.Source == source && r.status.Tag == tag {
			return false
		}
	}
	return true
}

func TestSeveralAtOnce(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	type outcome struct {
		i   int
		st  Status
		err error
	}
	var got []outcome
	var hs []Request
	take := func(i int, st *Status, err error) {
		got = append(got, outcome{i, *st, err})
		hs[i] = Request{}
	}
	post := func(tag int) Request {
		r, err := e.Recvs.Irecv(world0, make([]byte, 4), 0, tag, 1)
		require.NoError(t, err)
		return r
	}
	a, b, c := post(1), post(2), post(3)
	require.NoError(t, e.Sends.Send(world0, []byte{1, 2}, 0, 3))
	require.NoError(t, e.Sends.Send(world0, []byte{1, 2, 3, 4, 5}, 0, 1))

	hs = []Request{{}, a, b, c}
	n, at := handles(hs)
	require.False(t, e.Requests.TestAll(n, at, take))
	require.Empty(t, got, "nothing has happened to any")
	taken, active := e.Requests.TestSome(n, at, n, take)
	require.True(t, active)
	require.Equal(t, 2, taken)
	require.Equal(t, []int{1, 3}, []int{got[0].i, got[1].i})
	require.ErrorIs(t, got[0].err, ErrTruncate)
	require.Equal(t, 2, got[1].st.Bytes)
	require.NoError(t, got[1].err)
	taken, active = e.Requests.TestSome(n, at, n, take)
	require.Zero(t, taken)
	require.True(t, active)

	// A stale handle, the same one twice, and one of nobody.
	got = nil
	require.NoError(t, e.Sends.Send(world0, nil, 0, 2))
	hs = []Request{a, b, b, Null}
	n, at = handles(hs)
	require.True(t, e.Requests.TestAll(n, at, take))
	require.Len(t, got, 4)
	require.ErrorIs(t, got[0].err, ErrRequest)
	require.NoError(t, got[1].err)
	require.ErrorIs(t, got[2].err, ErrRequest)
	require.Equal(t, nullStatus, got[3].st)
	taken, active = e.Requests.TestSome(n, at, n, take)
	require.Zero(t, taken)
	require.False(t, active)
	require.True(t, e.Requests.TestAll(n, at, take))
	require.True(t, e.Requests.TestAll(0, nil, take))
	require.Zero(t, e.Requests.WaitSome(0, nil, 1, take))
}

// TestTwoWaitForOne: two goroutines that wait for one request, which is wrong, do not hang: one of them gets
// the error.
func TestTwoWaitForOne(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	for _, several := range []bool{false, true} {
		before := e.Stats().Sleeps
		r, err := e.Recvs.Irecv(world0, make([]byte, 1), 0, 0, 1)
		require.NoError(t, err)
		other, err := e.Recvs.Irecv(world0, make([]byte, 1), 0, 1, 1)
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() {
				if several && i == 0 {
					n, at := handles([]Request{other, r})
					e.Requests.WaitSome(n, at, 1, func(_ int, _ *Status, err error) { errs[i] = err })
					return
				}
				_, errs[i] = e.Requests.Wait(r)
			})
		}
		require.Eventually(t, func() bool { return e.Stats().Sleeps >= before+3 }, time.Minute,
			time.Millisecond)
		require.NoError(t, e.Sends.Send(world0, []byte{1}, 0, 0))
		wg.Wait()
		used := 0
		for _, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, ErrRequest)
				used++
			}
		}
		require.Equal(t, 2, used)
		require.NoError(t, e.Cancels.Cancel(other))
		_, err = e.Requests.Wait(other)
		require.NoError(t, err)
	}
}

func TestCancelReceive(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e, p := w[0], w[1]
		buf := make([]byte, 4)
		r, err := e.Recvs.Irecv(world0, buf, 1, 1, 1)
		require.NoError(t, err)
		require.NoError(t, e.Cancels.Cancel(r))
		require.NoError(t, e.Cancels.Cancel(r), "again, before the wait")
		require.NoError(t, p.Sends.Send(world0, []byte("late"), 0, 1))
		drive(t, w, func() bool { return unexpected(e) == 1 })
		st, err := e.Requests.Wait(r)
		require.NoError(t, err)
		require.True(t, st.Cancelled)
		require.Equal(t, make([]byte, 4), buf, "the withdrawn receive took a message")
		require.ErrorIs(t, e.Cancels.Cancel(r), ErrRequest)
		require.NoError(t, e.Cancels.Cancel(Request{}))
		require.NoError(t, e.Cancels.Cancel(Null))

		r, err = e.Recvs.Irecv(world0, buf, 1, 1, 1) // matched: too late to cancel
		require.NoError(t, err)
		require.NoError(t, e.Cancels.Cancel(r))
		st, err = e.Requests.Wait(r)
		require.NoError(t, err)
		require.False(t, st.Cancelled)
		require.Equal(t, "late", string(buf))
	})
}

// halves are two buffers in place of one: a message for them is never copied at once.
func halves(b []byte) [][]byte { return [][]byte{b[:len(b)/2], b[len(b)/2:]} }

// TestCancelReceiveUnderWay: a receive whose message is being fetched completes; Cancel returns when its
// buffer is quiet.
func TestCancelReceiveUnderWay(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		out, in := make([]byte, 100_000), make([]byte, 100_000)
		pattern(out, 0, 1)
		s, err := w[0].Sends.Issend(world0, out, 1, 1)
		require.NoError(t, err)
		r, err := w[1].Recvs.IrecvVec(world0, halves(in), 0, 1, 1)
		require.NoError(t, err)
		drive(t, w, func() bool { return w[1].fetching(r) })
		all := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { w[0].driveUntil(all, func() bool { return w[0].stopped != nil }) })
		require.NoError(t, w[1].Cancels.Cancel(r))
		require.True(t, w[1].isDone(r), "Cancel returned before the buffer was quiet")
		st, err := w[1].Requests.Wait(r)
		require.NoError(t, err)
		require.False(t, st.Cancelled)
		require.NoError(t, checkPattern(in, 0, 1))
		close(all)
		wg.Wait()
		drive(t, w, func() bool { return w[0].isDone(s) })
		_, err = w[0].Requests.Wait(s)
		require.NoError(t, err)
	})
}

// TestCancelSend: of sends that wait for room the one in the middle is withdrawn; the others come, in order.
func TestCancelSend(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		sent, open := stuff(t, w[0], 1, 1, 5)
		gone := len(sent) - 3
		require.NoError(t, w[0].Cancels.Cancel(open[gone]))
		require.NoError(t, w[0].Cancels.Cancel(open[0]), "it has left: this does nothing")
		ranks(t, w, func(e *Engine) error {
			if e.Rank() == 0 {
				for i, r := range open {
					st, err := e.Requests.Wait(r)
					require.NoError(t, err)
					require.Equal(t, i == gone, st.Cancelled, "message %d", i)
				}
				return nil
			}
			for i := range sent {
				if i == gone {
					continue
				}
				buf := make([]byte, 8)
				if _, err := e.recv(world0, buf, 0, 1, 1); err != nil {
					return err
				}
				if !bytes.Equal(buf, sent[i]) {
					return fmt.Errorf("message %d is another", i)
				}
			}
			return nil
		})
		require.Zero(t, unexpected(w[1]))
	})
}

func TestCancelSendToSelf(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	r, err := e.Sends.Issend(world0, []byte{1}, 0, 1)
	require.NoError(t, err)
	held, err := e.Sends.Issend(world0, []byte{2}, 0, 1)
	require.NoError(t, err)
	require.NoError(t, e.Cancels.Cancel(r))
	st, err := e.Requests.Wait(r)
	require.NoError(t, err)
	require.True(t, st.Cancelled)
	m, _, ok, err := e.Probes.Improbe(world0, 0, AnyTag)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, e.Cancels.Cancel(held), "it is matched")
	st, err = e.Requests.Wait(held)
	require.NoError(t, err)
	require.False(t, st.Cancelled)
	buf := make([]byte, 1)
	_, err = e.Probes.Mrecv(m, buf, 1)
	require.NoError(t, err)
	require.Equal(t, byte(2), buf[0])
}

// TestCanceller_Ends has a context end under every kind of operation; each ends by the table of docs on buffers,
// and the peers go on.
func TestCanceller_Ends(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		e, p := w[0], w[1]
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("the user has left")
		canceller := e.Cancels.NewCanceller(ctx)
		require.NoError(t, canceller.Err())
		bound := func(r Request, err error) Request {
			require.NoError(t, err)
			e.Cancels.Bind(r, canceller)
			return r
		}
		buf := make([]byte, 5000)
		recv := bound(e.Recvs.Irecv(world0, buf, 1, 1, 1))
		self := bound(e.Sends.Issend(world0, buf[:3], 0, 77))
		announced := bound(e.Sends.Issend(world0, buf, 1, 2))
		held := bound(e.Sends.Issend(world0, buf, 1, 3)) // a Message of the receiver will hold it
		drive(t, w, func() bool { return unexpected(p) == 2 })
		m, _, ok, err := p.Probes.Improbe(world0, 0, 3)
		require.NoError(t, err)
		require.True(t, ok)
		_, open := stuff(t, e, 1, 4, 2)
		queued := bound(e.Sends.Isend(world0, buf[:8], 1, 5))
		free, err := e.Recvs.Irecv(world0, make([]byte, 8), 1, 6, 1) // of no canceller
		require.NoError(t, err)
		var wg sync.WaitGroup
		before := e.Stats().Sleeps
		wg.Go(func() {
			_, err := e.Probes.Probe(world0, 1, 9, canceller)
			require.ErrorIs(t, err, context.Canceled)
		})
		wg.Go(func() {
			_, _, err := e.Probes.Mprobe(world0, 1, 9, canceller)
			require.ErrorIs(t, err, context.Canceled)
		})
		wg.Go(func() {
			_, err := e.Requests.Wait(recv)
			require.ErrorIs(t, err, context.Canceled)
		})
		require.Eventually(t, func() bool { return e.Stats().Sleeps >= before+3 }, time.Minute,
			time.Millisecond)
		cancel(reason)
		wg.Wait()
		for _, r := range []Request{self, queued} {
			_, err := e.Requests.Wait(r)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, reason)
		}
		require.False(t, e.isDone(announced), "the peer has not let go of its buffer")
		require.False(t, e.isDone(held), "the peer has not let go of its buffer")
		drive(t, w, func() bool { return e.isDone(announced) && e.isDone(held) })
		require.Zero(t, outstanding(e, 1))
		_, err = e.Requests.Wait(announced)
		require.ErrorIs(t, err, context.Canceled)
		_, err = e.Requests.Wait(held)
		require.NoError(t, err, "it was matched")
		st, err := p.Probes.Mrecv(m, make([]byte, 5000), 1)
		require.NoError(t, err)
		require.Equal(t, 5000, st.Bytes)
		late := bound(e.Recvs.Irecv(world0, buf, 1, 1, 1))
		_, err = e.Requests.Wait(late)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, canceller.Err().Error())

		ranks(t, w, func(e *Engine) error {
			if e.Rank() == 1 {
				for _, tag := range []int{2, 3, 5} {
					if _, ok, err := e.Probes.Iprobe(world0, 0, tag); ok || err != nil {
						return fmt.Errorf("a message with tag %d is there: %v", tag, err)
					}
				}
				for range open {
					if _, err := e.recv(world0, make([]byte, 8), 0, 4, 1); err != nil {
						return err
					}
				}
				return e.Sends.Send(world0, make([]byte, 8), 0, 6)
			}
			for _, r := range open {
				if _, err := e.Requests.Wait(r); err != nil {
					return err
				}
			}
			_, err := e.Requests.Wait(free)
			return err
		})
	})
}

// TestCanceller_EndsUnderAFetch: bytes that are on their way arrive, and the receive has not failed.
func TestCanceller_EndsUnderAFetch(t *testing.T) {
	onEach(t, 2, scopeEndsUnderAFetch)
}

func scopeEndsUnderAFetch(t *testing.T, w []*Engine) {
	connected(t, w)
	out, in := make([]byte, 100_000), make([]byte, 100_000)
	pattern(out, 0, 1)
	s, err := w[0].Sends.Issend(world0, out, 1, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	canceller := w[1].Cancels.NewCanceller(ctx)
	r, err := w[1].Recvs.IrecvVec(world0, halves(in), 0, 1, 1)
	require.NoError(t, err)
	w[1].Cancels.Bind(r, canceller)
	drive(t, w, func() bool { return w[1].fetching(r) })
	cancel()
	require.Eventually(t, func() bool { return canceller.ended.Load() != nil }, 2*time.Minute, time.Millisecond)
	drive(t, w, func() bool { return w[0].isDone(s) && w[1].isDone(r) })
	_, err = w[1].Requests.Wait(r)
	require.NoError(t, err)
	require.NoError(t, checkPattern(in, 0, 1))
}

// TestPeerThatDoesNotLetGo: a peer that makes no pass holds a buffer whose send was given up; when its time
// is over it counts as failed, and the buffer is quiet.
func TestPeerThatDoesNotLetGo(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		ctx, cancel := context.WithCancel(t.Context())
		canceller := w[0].Cancels.NewCanceller(ctx)
		r, err := w[0].Sends.Issend(world0, make([]byte, 5000), 1, 1)
		require.NoError(t, err)
		w[0].Cancels.Bind(r, canceller)
		cancel()
		require.Eventually(t, func() bool { return canceller.ended.Load() != nil }, 2*time.Minute, time.Millisecond)
		require.False(t, w[0].isDone(r))
		canceller.failUnresponsive([]cancelled{{request: r}}) // as its timer does
		_, err = w[0].Requests.Wait(r)
		require.ErrorIs(t, err, ErrProcFailed)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "rank 1")
		require.Zero(t, outstanding(w[0], 1))
	})
}

// TestCanceller_ALongMessageMayArrive: a peer is not failed while bytes of its message arrive, however long that
// takes, but it is when they stop.
func TestCanceller_ALongMessageMayArrive(t *testing.T) {
	w := world(t, simDevices(1, 2))
	connected(t, w)
	const bytes = 400_000
	var vec [][]byte // each buffer is read by itself
	for range 100 {
		vec = append(vec, make([]byte, bytes/100))
	}
	ctx, cancel := context.WithCancel(t.Context())
	canceller := w[1].Cancels.NewCanceller(ctx)
	_, err := w[0].Sends.Issend(world0, make([]byte, bytes), 1, 1)
	require.NoError(t, err)
	r, err := w[1].Recvs.IrecvVec(world0, vec, 0, 1, 1)
	require.NoError(t, err)
	w[1].Cancels.Bind(r, canceller)
	fetched := func() int {
		w[1].mu.Lock()
		defer w[1].mu.Unlock()
		return w[1].Requests.find(r).movedLocked()
	}
	drive(t, w, func() bool { return w[1].fetching(r) })
	cancel()
	require.Eventually(t, func() bool { return canceller.ended.Load() != nil }, 2*time.Minute, time.Millisecond)
	before := fetched()
	drive(t, w, func() bool { return fetched() > before })
	require.Less(t, fetched(), bytes, "the message is there: nothing is tested")
	canceller.failUnresponsive([]cancelled{{r, before}}) // as its timer does
	require.Equal(t, peerOpen, peerOf(w[1], 0).state)
	require.False(t, w[1].isDone(r))

	canceller.failUnresponsive([]cancelled{{r, fetched()}})
	_, err = w[1].Requests.Wait(r)
	require.ErrorIs(t, err, ErrProcFailed)
	require.ErrorContains(t, err, "rank 0")
}

// TestCanceller_ALongMessageMayBeWritten: neither end fails the other while a message is written into one granted
// buffer, however long that takes.
func TestCanceller_ALongMessageMayBeWritten(t *testing.T) {
	w := world(t, tcpDevices(t, 2))
	connected(t, w)
	out, in := make([]byte, 64<<20), make([]byte, 64<<20)
	pattern(out, 0, 1)
	s, err := w[0].Sends.Issend(world0, out, 1, 1)
	require.NoError(t, err)
	r, err := w[1].Recvs.Irecv(world0, in, 0, 1, 1)
	require.NoError(t, err)
	drive(t, w, func() bool { return w[1].fetching(r) })
	var cancellers [2]*Canceller
	for i, h := range []Request{s, r} {
		ctx, cancel := context.WithCancel(t.Context())
		cancellers[i] = w[i].Cancels.NewCanceller(ctx)
		w[i].Cancels.Bind(h, cancellers[i])
		cancel()
		require.Eventually(t, func() bool { return cancellers[i].ended.Load() != nil }, 2*time.Minute,
			time.Millisecond)
	}
	moved := func(e *Engine, h Request) int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.Requests.find(h).movedLocked()
	}
	written, arrived := moved(w[0], s), moved(w[1], r)
	drive(t, w, func() bool { return moved(w[0], s) > written && moved(w[1], r) > arrived })
	require.False(t, w[0].isDone(s) || w[1].isDone(r), "nothing is tested")
	cancellers[0].failUnresponsive([]cancelled{{s, written}}) // as their timers do
	cancellers[1].failUnresponsive([]cancelled{{r, arrived}})
	drive(t, w, func() bool { return w[0].isDone(s) && w[1].isDone(r) })
	_, err = w[0].Requests.Wait(s)
	require.NoError(t, err)
	_, err = w[1].Requests.Wait(r)
	require.NoError(t, err)
	require.True(t, bytes.Equal(out, in))
}

// TestMatchedMessageOfLostPeer: of a message that a Message holds, what is here is received though its sender
// is lost; what is not fails.
func TestMatchedMessageOfLostPeer(t *testing.T) {
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		require.NoError(t, w[0].Sends.Send(world0, []byte("here"), 1, 1))
		r, err := w[0].Sends.Issend(world0, []byte("away"), 1, 2)
		require.NoError(t, err)
		drive(t, w, func() bool { return unexpected(w[1]) == 2 })
		here, _, ok, err := w[1].Probes.Improbe(world0, 0, 1)
		require.NoError(t, err)
		require.True(t, ok)
		away, _, ok, err := w[1].Probes.Improbe(world0, 0, 2)
		require.NoError(t, err)
		require.True(t, ok)
		w[0].hub.Fail(ErrAborted)
		_, err = w[0].Requests.Wait(r)
		require.ErrorIs(t, err, ErrAborted)
		w[1].mu.Lock()
		w[1].failures.failPeer(w[1].peers[0], errors.New("the test says so"))
		w[1].mu.Unlock()
		buf := make([]byte, 4)
		_, err = w[1].Probes.Mrecv(here, buf, 1)
		require.NoError(t, err)
		require.Equal(t, "here", string(buf))
		_, err = w[1].Probes.Mrecv(away, buf, 1)
		require.ErrorIs(t, err, ErrProcFailed)
	})
}

// TestFailEndsSendsToSelf: the end of the engine completes what a rank has begun with itself, held by a
// Message or not.
func TestFailEndsSendsToSelf(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	a, err := e.Sends.Issend(world0, make([]byte, 10), 0, 1)
	require.NoError(t, err)
	b, err := e.Sends.Issend(world0, make([]byte, 10), 0, 2)
	require.NoError(t, err)
	m, _, ok, err := e.Probes.Improbe(world0, 0, 2)
	require.NoError(t, err)
	require.True(t, ok)
	e.hub.Fail(ErrAborted)
	for _, r := range []Request{a, b} {
		_, err = e.Requests.Wait(r)
		require.ErrorIs(t, err, ErrAborted)
	}
	_, err = e.Probes.Mrecv(m, make([]byte, 10), 1)
	require.ErrorIs(t, err, ErrAborted)
}

func TestBusy(t *testing.T) {
	e := world(t, fabrics["sim"](t, 1, 1))[0]
	const context = 40
	require.False(t, e.ContextInUse(context))
	r, err := e.Recvs.Irecv(context, make([]byte, 1), 0, 0, 1)
	require.NoError(t, err)
	require.True(t, e.ContextInUse(context), "a receive is posted")
	require.NoError(t, e.Sends.Send(context, []byte{1}, 0, 0))
	require.False(t, e.ContextInUse(context), "complete, though not waited for")
	_, err = e.Requests.Wait(r)
	require.NoError(t, err)
	require.NoError(t, e.Sends.Send(context, []byte{1}, 0, 0))
	require.True(t, e.ContextInUse(context), "a message waits")
	_, err = e.recv(context, make([]byte, 1), 0, 0, 1)
	require.NoError(t, err)
	s, err := e.Sends.Issend(context, []byte{1}, 0, 0)
	require.NoError(t, err)
	require.True(t, e.ContextInUse(context), "a send waits")
	require.NoError(t, e.Cancels.Cancel(s))
	require.False(t, e.ContextInUse(context))
	task, err := e.Requests.BeginTask(context)
	require.NoError(t, err)
	require.True(t, e.ContextInUse(context), "an agreement is under way")
	e.Requests.EndTask(task, nil)
	require.False(t, e.ContextInUse(context))
	e.ReleaseContext(context)
}

// TestAllocationsOfSeveral: synchronous sends, matched probes and waits for several requests allocate
// nothing.
func TestAllocationsOfSeveral(t *testing.T) {
	w := world(t, fabrics["tcp"](t, 1, 2))
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 600)
		for {
			m, st, err := w[1].Probes.Mprobe(world0, 0, AnyTag, nil)
			if err != nil || st.Bytes == 0 {
				return
			}
			if _, err := w[1].Probes.Mrecv(m, buf, 1); err != nil {
				return
			}
			if err := w[1].Sends.Ssend(world0, buf[:st.Bytes], 0, st.Tag); err != nil {
				return
			}
		}
	})
	out, in := make([]byte, 600), make([]byte, 600)
	hs := make([]Request, 30)
	round := func() {
		for i := range 3 {
			r, err := w[0].Recvs.Irecv(world0, in[i*200:(i+1)*200], 1, i, 1)
			if err != nil {
				t.Fatal(err)
			}
			s, err := w[0].Sends.Issend(world0, out[i*200:(i+1)*200], 1, i)
			if err != nil {
				t.Fatal(err)
			}
			hs[i*7], hs[i*7+3] = r, s
		}
		for {
			taken := w[0].Requests.WaitSome(len(hs), func(i int) Request { return hs[i] }, 2,
				func(i int, _ *Status, err error) {
					if err != nil {
						t.Error(err)
					}
					hs[i] = Request{}
				})
			if taken == 0 {
				return
			}
		}
	}
	for range 50 {
		round()
	}
	require.Zero(t, testing.AllocsPerRun(300, round))
	require.NoError(t, w[0].Sends.Send(world0, nil, 1, 0))
	wg.Wait()
}

// TestManyUnreceivedSends_ThenAPair: two partners complete whatever was sent before: here more messages than
// have receive requests posted for their ends, and more than there is memory for at the receiver.
func TestManyUnreceivedSends_ThenAPair(t *testing.T) {
	for name, devices := range fabrics {
		t.Run(name, func(t *testing.T) {
			messages := 1000
			if name[:3] != "sim" {
				messages = often(20_000)
			}
			w := worldOf(t, devices(t, 1, 2), Config{MaxUnexpectedBytes: 10_000})
			ranks(t, w, func(e *Engine) error { return unreceivedThenAPair(e, messages) })
			require.Positive(t, w[1].Stats().Holds)
		})
	}
}

func unreceivedThenAPair(e *Engine, messages int) error {
	if e.Rank() == 1 {
		buf := make([]byte, 100)
		if _, err := e.recv(world0, buf[:1], 0, 2, 1); err != nil {
			return err
		}
		for i := range messages {
			if _, err := e.recv(world0, buf, 0, 1, 1); err != nil {
				return err
			}
			if err := checkPattern(buf, 0, i); err != nil {
				return err
			}
		}
		return nil
	}
	open := make([]Request, messages)
	for i := range open {
		buf := make([]byte, 100)
		pattern(buf, 0, i)
		var err error
		if open[i], err = e.Sends.Isend(world0, buf, 1, 1); err != nil {
			return err
		}
	}
	if err := e.Sends.Send(world0, []byte{1}, 1, 2); err != nil {
		return err
	}
	for _, r := range open {
		if _, err := e.Requests.Wait(r); err != nil {
			return err
		}
	}
	return nil
}

// TestScatteredReceive: an announced message is received into more buffers than a device has regions, whole or
// cut off, and into buffers of a few bytes among longer ones.
func TestScatteredReceive(t *testing.T) {
	const most = 1 << 20
	onEach(t, 2, func(t *testing.T, w []*Engine) {
		connected(t, w)
		sent := make([]byte, most+100)
		pattern(sent, 0, 1)
		memory := make([]byte, most+100)
		for name, lengths := range map[string][]int{
			"many": {1}, "short": {1}, "unequal": {3, 0, 100, 1, 5000},
		} {
			clear(memory)
			room := len(memory)
			if name == "short" {
				room -= 100
			}
			var vec [][]byte
			for at, i := 0, 0; at < room; i++ {
				n := min(lengths[i%len(lengths)], room-at)
				vec = append(vec, memory[at:at+n])
				at += n
			}
			r, err := w[1].Recvs.IrecvVec(world0, vec, 0, 1, 1)
			require.NoError(t, err)
			s, err := w[0].Sends.Issend(world0, sent, 1, 1)
			require.NoError(t, err)
			drive(t, w, func() bool { return w[0].isDone(s) && w[1].isDone(r) })
			_, err = w[0].Requests.Wait(s)
			require.NoError(t, err)
			st, err := w[1].Requests.Wait(r)
			if room < len(sent) {
				require.ErrorIs(t, err, ErrTruncate)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, room, st.Bytes)
			require.True(t, bytes.Equal(sent[:room], memory[:room]), name)
		}
	})
}
