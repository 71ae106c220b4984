package tcp

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/keepalive"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/setup/message"
)

var epoch = time.Unix(1000, 0)

// ticks lets periods go by for a queue pair, one by one, and keeps its completions.
func (s *session) ticks(n int) {
	c := s.cq.(*cq)
	for range n {
		c.Tick(c.clock.Last.Add(s.dev.Query().TickPeriod))
		s.poll()
	}
}

// started is a session whose first tick has passed.
func started(t *testing.T, initiator bool) *session {
	s := newSessionDevice(t)
	s.begin(t, initiator)
	t.Cleanup(func() { s.end(t) })
	s.cq.Tick(epoch)
	s.poll()
	s.heard(t)
	return s
}

func alive() []byte { return frame.Header{Op: frame.Alive, Flags: frame.Last}.Append(nil) }

// An idle queue pair says once a period that it lives; one that has sent something since the last tick need
// not.
func TestAlive_IdleQueuePairSaysThatItLives(t *testing.T) {
	s := started(t, true)
	for range 3 * keepalive.MaxMissed {
		s.says(t, alive())
		s.ticks(1)
		require.Equal(t, []frame.Op{frame.Alive}, kinds(s.heard(t)))
	}
	require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpSend}))
	require.Equal(t, []frame.Op{frame.Send}, kinds(s.heard(t)))
	s.ticks(1)
	require.Empty(t, s.heard(t))
	s.ticks(1)
	require.Equal(t, []frame.Op{frame.Alive}, kinds(s.heard(t)))
	require.Equal(t, transport.StateReady, s.qp.State())
}

// A peer that says nothing is lost after the timeout and at most one period, it is told so, and every request
// completes; anything at all that comes, and be it a byte, starts the time anew.
func TestAlive_SilentPeerIsLost(t *testing.T) {
	s := started(t, true)
	require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 1}))
	s.ticks(keepalive.MaxMissed - 1)
	require.Equal(t, transport.StateReady, s.qp.State())
	for _, b := range alive() {
		s.says(t, []byte{b})
		s.ticks(keepalive.MaxMissed)
		require.Equal(t, transport.StateReady, s.qp.State())
	}
	require.Empty(t, s.wcs, "Alive uses no Recv and completes nothing")
	s.heard(t)
	s.ticks(1)
	require.Equal(t, transport.StateError, s.qp.State())
	require.ErrorIs(t, s.qp.Err(), transport.ErrPeerLost)
	require.ErrorContains(t, s.qp.Err(), sessionPeer)
	require.ErrorContains(t, s.qp.Err(), "silent for 10s")
	require.Len(t, s.wcs, 1)
	require.Equal(t, uint64(1), s.wcs[0].ID)
	require.ErrorIs(t, s.wcs[0].Err, transport.ErrPeerLost)
	last := s.heard(t)
	require.Equal(t, []frame.Op{frame.Terminate}, kinds(last), "who was stopped learns why, when it goes on")
	require.Equal(t, uint64(frame.ReasonLocal), last[0].A)
	require.Contains(t, string(last[0].payload), "silent for 10s")
}

// A peer that is known to run is not lost as long as it is, and is told that this end lives; it is asked for
// only while the peer is silent.
func TestAlive_PeerThatRunsIsNotLost(t *testing.T) {
	s := started(t, true)
	asked, running := 0, true
	s.dev.opts.Running = func(peer uint32) bool {
		require.Equal(t, uint32(1), peer)
		asked++
		return running
	}
	for range 3 {
		s.says(t, alive())
		s.ticks(1)
	}
	require.Zero(t, asked)
	s.heard(t)
	for range 5 * keepalive.MaxMissed {
		s.ticks(1)
		require.Equal(t, []frame.Op{frame.Alive}, kinds(s.heard(t)))
	}
	require.Equal(t, transport.StateReady, s.qp.State())
	running = false
	s.ticks(1)
	require.ErrorIs(t, s.qp.Err(), transport.ErrPeerLost)
	require.ErrorContains(t, s.qp.Err(), "silent for 10s")
}

// What a peer says between the question whether it runs and the answer no is heard.
func TestAlive_PeerThatRanJustNowIsNotLost(t *testing.T) {
	s := started(t, true)
	s.dev.opts.Running = func(uint32) bool {
		_, err := syscall.Write(s.wire, alive())
		require.NoError(t, err)
		return false
	}
	s.ticks(5 * keepalive.MaxMissed)
	require.Equal(t, transport.StateReady, s.qp.State())
}

// What has come counts although no pass has looked at it before the tick.
func TestAlive_WhatLiesInTheSocketIsHeard(t *testing.T) {
	s := started(t, true)
	for range 3 * keepalive.MaxMissed {
		_, err := syscall.Write(s.wire, alive())
		require.NoError(t, err)
		c := s.cq.(*cq)
		c.Tick(c.clock.Last.Add(s.dev.Query().TickPeriod))
	}
	require.Equal(t, transport.StateReady, s.qp.State())
}

// A rank that was not running itself for hours loses nobody.
func TestAlive_LateTicksCountAgainstNobody(t *testing.T) {
	s := started(t, true)
	c := s.cq.(*cq)
	for range 3 * keepalive.MaxMissed {
		c.Tick(c.clock.Last.Add(time.Hour))
	}
	require.Equal(t, transport.StateReady, s.qp.State())
}

// The responder of a connection whose initiator gave up after its Request: the first frame never comes. It
// says nothing, since the other may be in streaming mode, and does not wait for ever.
func TestAlive_C5_FirstFrameNeverComes(t *testing.T) {
	s := started(t, false)
	require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 1}))
	s.ticks(keepalive.MaxMissed - 1)
	require.Equal(t, transport.StateReady, s.qp.State())
	s.ticks(1)
	require.ErrorIs(t, s.qp.Err(), transport.ErrPeerLost)
	require.Len(t, s.wcs, 1)
	require.Empty(t, s.heard(t), "not even Terminate")
}

// Alive comes between any two frames: of one message, after Close. Ready still comes first.
func TestAlive_BetweenAnyTwoFrames(t *testing.T) {
	s := started(t, false)
	require.NoError(t, s.qp.PostRecv(&transport.RecvWR{ID: 7}))
	s.says(t, frame.Header{Op: frame.Ready, Flags: frame.Last}.Append(nil))
	s.says(t, alive())
	s.says(t, frame.Header{Op: frame.Send}.Append(nil))
	s.says(t, alive())
	s.says(t, frame.Header{Op: frame.Send, Flags: frame.Last}.Append(nil))
	require.Len(t, s.wcs, 1)
	require.Equal(t, uint64(7), s.wcs[0].ID)
	s.says(t, frame.Header{Op: frame.Close, Flags: frame.Last}.Append(nil))
	s.says(t, alive())
	require.Equal(t, transport.StateDraining, s.qp.State())
	s.ticks(keepalive.MaxMissed + 1)
	require.Equal(t, []frame.Op{frame.Alive, frame.Alive, frame.Alive, frame.Alive, frame.Terminate}, kinds(s.heard(t)))
	require.ErrorIs(t, s.qp.Err(), transport.ErrPeerLost)

	early := started(t, false)
	early.says(t, alive())
	require.ErrorIs(t, early.qp.Err(), transport.ErrProtocol)
	require.ErrorContains(t, early.qp.Err(), "Alive where Ready must come first")
}

// After our own Close we go on saying that we live: the peer may still have much to send.
func TestAlive_AfterClose(t *testing.T) {
	s := started(t, true)
	s.qp.Close()
	require.Equal(t, []frame.Op{frame.Close}, kinds(s.heard(t)))
	s.ticks(2)
	require.Equal(t, []frame.Op{frame.Alive}, kinds(s.heard(t)))
	s.ticks(keepalive.MaxMissed)
	require.Equal(t, transport.StateError, s.qp.State())
	require.ErrorIs(t, s.qp.Err(), transport.ErrPeerLost)
}

// A frame that the socket has taken in part is never broken by an Alive, whatever the socket does; and one
// that does not fit goes later.
func TestAlive_NeverInsideAFrame(t *testing.T) {
	s := started(t, true)
	mr, err := s.pd.Alloc(1<<20, 0)
	require.NoError(t, err)
	sent := 0
	for !s.qp.blocked {
		require.NoError(t, s.qp.PostSend(&transport.SendWR{Op: transport.OpSend,
			Local: []transport.SGE{{MR: mr, Length: 1 << 20}}}))
		sent++
	}
	s.ticks(2)
	require.False(t, firstLink(s.qp).partial.Empty(), "the fault has not struck")
	var stream []byte
	at, bytes, beats := 0, 0, 0
	b := make([]byte, 1<<16)
	for range 1 << 16 {
		s.says(t, alive())
		s.ticks(1)
		n, err := syscall.Read(s.wire, b)
		require.NoError(t, err)
		stream = append(stream, b[:n]...)
		for len(stream)-at >= frame.HeaderSize {
			h, err := frame.Parse(stream[at:])
			require.NoError(t, err)
			at += frame.HeaderSize + h.Length
			bytes += h.Length
			if h.Op == frame.Alive {
				beats++
			}
		}
		if at == len(stream) && bytes == sent<<20 && beats > 0 {
			return
		}
	}
	t.Fatalf("%d bytes of %d, %d beats", bytes, sent<<20, beats)
}

func TestOptions_PeerTimeout(t *testing.T) {
	for _, d := range []time.Duration{-1, 1, MinPeerTimeout - 1} {
		_, err := New(Options{PeerTimeout: d})
		require.ErrorContains(t, err, fmt.Sprintf("a peer timeout of %v: must be at least 100ms", d))
	}
	d, err := New(Options{PeerTimeout: MinPeerTimeout})
	require.NoError(t, err)
	require.Equal(t, MinPeerTimeout/keepalive.MaxMissed, d.Query().TickPeriod)
	require.NoError(t, d.Close())
}

// An initiator that is gone after its Request, without a word: the responder has accepted, and its queue
// pair's first frame never comes. While it stands another connection is turned away, which does it no harm;
// it ends by itself, and then the two can be connected.
func TestResponder_C5_InitiatorFallsSilentAfterRequest(t *testing.T) {
	h := newHost(t, Options{})
	first := h.dial(1)
	first.connect()
	m := h.nextMade()
	require.NoError(t, m.qp.PostRecv(&transport.RecvWR{ID: 1}))
	again := func() *raw {
		r := h.dial(1)
		r.sayHello()
		r.hearChallenge()
		r.say(r.request())
		return r
	}
	require.Contains(t, again().last(), "another connection between the two stays")
	require.Equal(t, 0, h.cq.Poll(make([]transport.WC, 1)))
	now := epoch
	for range keepalive.MaxMissed {
		h.cq.Tick(now)
		now = now.Add(h.dev.Query().TickPeriod)
		require.Equal(t, 0, h.cq.Poll(make([]transport.WC, 1)))
		require.Equal(t, transport.StateReady, m.qp.State())
	}
	h.cq.Tick(now)
	h.until("the end of the queue pair", func() bool { return len(h.wcs) == 1 })
	require.ErrorIs(t, m.qp.Err(), transport.ErrPeerLost)
	require.ErrorContains(t, m.qp.Err(), "silent for 10s")
	m.qp.Release()
	r := again()
	_, err := r.expect(message.Accept)
	require.NoError(t, err)
	h.nextMade()
}

// The same with a device whose Connect is given up while the responder is about to accept: the end of the
// connection tells, no time has a part in it, and the next Connect succeeds.
func TestInitiator_C5_GivenUpBeforeAccept(t *testing.T) {
	caller, h := newHostOfRank(t, Options{}, 1), newHost(t, Options{})
	ctx, giveUp := context.WithCancel(t.Context())
	h.preparing = func() {
		h.preparing = nil
		giveUp()
		<-caller.gaveUp
	}
	caller.gaveUp = make(chan struct{})
	err := caller.ep.Connect(ctx, 0, h.ep.Addr())
	require.ErrorIs(t, err, context.Canceled)
	close(caller.gaveUp)
	m := h.nextMade()
	require.NoError(t, m.qp.PostRecv(&transport.RecvWR{ID: 1}))
	h.until("the end of the queue pair", func() bool { return len(h.wcs) == 1 })
	require.ErrorIs(t, m.qp.Err(), transport.ErrPeerLost)
	m.qp.Release()
	require.NoError(t, caller.ep.Connect(t.Context(), 0, h.ep.Addr()))
	require.Equal(t, transport.StateReady, caller.nextMade().qp.State())
	require.Equal(t, transport.StateReady, h.nextMade().qp.State())
}
