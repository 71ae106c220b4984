package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Sends carries out sends: at once where a message fits a slot and nothing waits before it, else
// with a request, by eager pieces or by rendezvous.
//
// Invariants, under the lock: messages to a peer go out in the order of their sends, so nothing passes the
// peer's batch or its queue; a send is in the queue until all of it is with its protocols; its request is
// complete when no protocol reads the buffer any more.
type Sends struct {
	e           *Engine
	creditSpins uint32 // sends that found a ring full, and waited for room
}

// register has the router hand the sender's messages and completions over.
func (s *Sends) register(t *router) {
	t.onMessage(channel.CTS, s.onCTS)
	t.onCompletion(rendezvous.WriteOwner, func(p *peer, wc *transport.WC) {
		token, done, err := p.fabric.sender.OnCompletion(wc)
		if done {
			p.stats.Granted++
		}
		s.onAnnouncementDone(p, token, done, err)
	})
	t.onImmediate(immediateFIN, func(p *peer, imm uint32) {
		token, err := p.fabric.sender.OnFIN(p.ch, imm)
		s.onAnnouncementDone(p, token, err == nil, err)
	})
}

func (s *Sends) onCTS(p *peer, body []byte) error {
	cts, err := rendezvous.ParseCTS(body)
	if err != nil {
		return err
	}
	return p.fabric.sender.OnCTS(p.ch, cts)
}

// sendMode is what a send's caller asks for.
type sendMode uint8

const (
	sendBlocking    sendMode = iota // the caller waits, so the message goes out at once
	sendNonblocking                 // the message may be coalesced with others
	// the receive has to be matched before the send is complete. Such a send is always announced, also a
	// small or empty one: the FIN that ends it comes only after the match.
	sendSynchronous
	sendSynchronousNonblocking
)

func (m sendMode) nonblocking() bool { return m&sendNonblocking != 0 }
func (m sendMode) synchronous() bool { return m >= sendSynchronous }

// Send sends buf to a world rank and returns when buf is the caller's again: copied (eager), or taken by the
// receiver.
func (s *Sends) Send(context uint32, buf []byte, dst, tag int) error {
	e := s.e
	env := envelope{Context: context, Tag: int32(tag)}
	if e.hook != nil {
		return s.sendHooked(env, buf, dst)
	}
	e.mu.Lock()
	// The common case needs no request: the peer is connected, nothing waits before us, and the message fits.
	if p := e.peers[dst]; p != nil && p.canSendShort(len(buf)) && s.sendEagerLocked(p, env, buf, 0) {
		e.mu.Unlock()
		return nil
	}
	return s.waitAndUnlock(env, buf, dst, sendBlocking)
}

// Ahead is Send of a short message which another one to the same rank is likely to follow at once: it may
// be held back until then, or until the next pass, so that both travel together.
func (s *Sends) Ahead(context uint32, buf []byte, dst, tag int) error {
	e := s.e
	env := envelope{Context: context, Tag: int32(tag)}
	e.mu.Lock()
	if p := e.peers[dst]; p != nil && e.stopped == nil && len(buf) <= eager.MaxBatched {
		e.coalescer.count(p)
		if e.coalescer.holdBack(p); e.coalescer.add(p, env, buf) {
			e.mu.Unlock()
			return nil
		}
	}
	return s.waitAndUnlock(env, buf, dst, sendBlocking)
}

// sendHooked is Send with a hook.
func (s *Sends) sendHooked(env envelope, buf []byte, dst int) (err error) {
	e := s.e
	start := e.hook.begin(CallSend, len(buf))
	e.mu.Lock()
	if p := e.peers[dst]; p != nil && p.canSendShort(len(buf)) && s.sendEagerLocked(p, env, buf, 0) {
		e.mu.Unlock()
	} else {
		err = s.waitAndUnlock(env, buf, dst, sendBlocking)
	}
	e.hook.end(CallSend, start, dst, int(env.Tag), len(buf))
	return err
}

// Ssend sends buf and returns when its receive has started, and buf is the caller's again.
func (s *Sends) Ssend(context uint32, buf []byte, dst, tag int) error {
	e := s.e
	start := e.hook.begin(CallSsend, len(buf))
	e.mu.Lock()
	err := s.waitAndUnlock(envelope{Context: context, Tag: int32(tag)}, buf, dst, sendSynchronous)
	e.hook.end(CallSsend, start, dst, tag, len(buf))
	return err
}

// Isend begins a send. buf must stay as it is until the request is complete.
func (s *Sends) Isend(context uint32, buf []byte, dst, tag int) (Request, error) {
	e := s.e
	env := envelope{Context: context, Tag: int32(tag)}
	if e.hook != nil {
		return s.isendHooked(env, buf, dst)
	}
	return s.nonblocking(env, buf, dst, sendNonblocking)
}

// isendHooked is Isend with a hook.
func (s *Sends) isendHooked(env envelope, buf []byte, dst int) (Request, error) {
	e := s.e
	tag := int(env.Tag)
	start := e.hook.begin(CallIsend, len(buf))
	h, err := s.nonblocking(env, buf, dst, sendNonblocking)
	e.hook.end(CallIsend, start, dst, tag, len(buf))
	return h, err
}

// Issend begins a synchronous send. buf must stay as it is until the request is complete.
func (s *Sends) Issend(context uint32, buf []byte, dst, tag int) (Request, error) {
	e := s.e
	start := e.hook.begin(CallIsend, len(buf))
	h, err := s.nonblocking(envelope{Context: context, Tag: int32(tag)}, buf, dst,
		sendSynchronousNonblocking)
	e.hook.end(CallIsend, start, dst, tag, len(buf))
	return h, err
}

// IsendVec is Isend of one message out of several buffers. They, and the slice of them, must stay as they are
// until the request is complete.
func (s *Sends) IsendVec(context uint32, vec [][]byte, dst, tag int) (Request, error) {
	return s.isendVec(context, vec, dst, tag, false)
}

// IssendVec is Issend of one message out of several buffers.
func (s *Sends) IssendVec(context uint32, vec [][]byte, dst, tag int) (Request, error) {
	return s.isendVec(context, vec, dst, tag, true)
}

func (s *Sends) isendVec(context uint32, vec [][]byte, dst, tag int, sync bool) (Request, error) {
	e := s.e
	if e.hook != nil {
		n := bytesIn(vec)
		start := e.hook.begin(CallIsend, n)
		defer func() { e.hook.end(CallIsend, start, dst, tag, n) }()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return Request{}, e.stopped
	}
	r := e.Requests.get()
	r.vec, r.sync = vec, sync
	more := !sync && e.coalescer.shouldCoalesceTo(dst, r.bufferLen())
	s.startLocked(r, envelope{Context: context, Tag: int32(tag)}, dst, more)
	return r.handle(), nil
}

// bytesIn is how long a vector is.
func bytesIn(vec [][]byte) (n int) {
	for _, b := range vec {
		n += len(b)
	}
	return n
}

// waitAndUnlock carries out a send with a request, to its end.
func (s *Sends) waitAndUnlock(env envelope, buf []byte, dst int, mode sendMode) error {
	s.e.mu.assertHeld()
	if p := s.e.peers[dst]; p != nil && mode == sendBlocking && len(buf) > p.shortLimit {
		if r, ok := s.sendLongLocked(p, env, buf); ok {
			s.e.mu.Unlock()
			if r == nil {
				return nil
			}
			st, err := s.e.waiting.wait(r)
			if err != nil || !st.Cancelled {
				return err
			}
			s.e.mu.Lock() // it was withdrawn, and goes into a slot
		}
	}
	r, err := s.requestLocked(env, buf, dst, mode, false)
	s.e.mu.Unlock()
	if err == nil {
		_, err = s.e.waiting.wait(r)
	}
	return err
}

// nonblocking begins a send and gives its handle.
func (s *Sends) nonblocking(env envelope, buf []byte, dst int, mode sendMode) (h Request, err error) {
	s.e.mu.Lock()
	p := s.e.peers[dst]
	if p != nil && p.batch.Count() > 0 && mode == sendNonblocking &&
		s.e.coalescer.continueRun(p, env, buf) {
		h = s.e.Requests.newCompleted()
		s.e.mu.Unlock()
		return h, nil
	}
	r, err := s.beginLocked(env, buf, dst, mode)
	switch {
	case err != nil:
	case r == nil:
		h = s.e.Requests.newCompleted()
	default:
		h = r.handle()
	}
	s.e.mu.Unlock()
	return h, err
}

// beginLocked begins a nonblocking send of one buffer. Without an error and a request the message is
// with its protocol, and the buffer the caller's again: a request is only for what has to wait.
func (s *Sends) beginLocked(env envelope, buf []byte, dst int, mode sendMode) (*request, error) {
	s.e.mu.assertHeld()
	more := mode.nonblocking() && s.e.stopped == nil && s.e.coalescer.shouldCoalesceTo(dst, len(buf))
	if p := s.e.peers[dst]; p != nil && !mode.synchronous() {
		if more && len(buf) <= eager.MaxBatched && s.e.coalescer.add(p, env, buf) ||
			s.sendNowLocked(p, env, buf, sendFlags(more)) {
			return nil, nil
		}
		more = more && p.burst.coalesced
	}
	return s.requestLocked(env, buf, dst, mode, more)
}

// requestLocked begins a send with a request.
func (s *Sends) requestLocked(env envelope, buf []byte, dst int, mode sendMode,
	more bool) (*request, error) {
	s.e.mu.assertHeld()
	if s.e.stopped != nil {
		return nil, s.e.stopped
	}
	r := s.e.Requests.get()
	r.contiguous(buf)
	r.sync = mode.synchronous()
	s.startLocked(r, env, dst, more)
	return r, nil
}

// sendNowLocked sends a message that fits a slot and need not wait for others; false if it needs a request.
// What is wrong with a channel the attempt with a request finds too.
func (s *Sends) sendNowLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) bool {
	s.e.mu.assertHeld()
	if !p.canSendEager(len(buf)) && !s.canSendAfterBatchLocked(p, len(buf)) {
		return false
	}
	return s.sendEagerLocked(p, env, buf, flags)
}

// sendEagerLocked copies a message into the peer's ring, for which nothing waits; false if there is no room
// soon.
func (s *Sends) sendEagerLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) bool {
	s.e.mu.assertHeld()
	sent, err := eager.TrySend(p.ch, env, buf, flags)
	if sent {
		p.stats.eager(len(buf))
		s.e.recorder.Note(recorder.Sent, env.Context, p.rank, int(env.Tag), len(buf))
		s.e.hook.sent(env, p.rank, len(buf))
		return true
	}
	return err == nil && s.sendAfterCreditsLocked(p, env, buf, flags)
}

// canSendAfterBatchLocked sends the batch that a message would pass, and tells whether the message can be
// sent now.
func (s *Sends) canSendAfterBatchLocked(p *peer, n int) bool {
	s.e.mu.assertHeld()
	if p.batch.Count() == 0 || p.state != peerOpen {
		return false
	}
	sent, err := s.e.coalescer.sendBatch(p, true)
	return sent && err == nil && p.canSendEager(n)
}

// sendAfterCreditsLocked sends a message that has found no room, if there is some soon. When no credits come
// it may leave the cache window of the ring. Where a pass was made nothing is coalesced any more.
func (s *Sends) sendAfterCreditsLocked(p *peer, env envelope, buf []byte,
	flags channel.SendFlags) bool {
	s.e.mu.assertHeld()
	for len(buf) <= eager.MaxPayload(p.ch) {
		credits := s.spinForCreditsLocked(p)
		if !p.canSendEager(len(buf)) {
			return false
		}
		if !credits {
			flags |= channel.FlagBeyondWindow
		}
		if !p.burst.coalesced {
			flags &^= channel.FlagMore
		}
		sent, err := eager.TrySend(p.ch, env, buf, flags)
		if sent {
			p.stats.eager(len(buf))
			s.e.recorder.Note(recorder.Sent, env.Context, p.rank, int(env.Tag), len(buf))
			s.e.hook.sent(env, p.rank, len(buf))
			return true
		}
		if err != nil || !credits {
			return false
		}
	}
	return false
}

// sendFlags are the flags of a message after which another one follows, or none.
func sendFlags(more bool) channel.SendFlags {
	if more {
		return channel.FlagMore
	}
	return 0
}

// spinForCreditsLocked waits for room in the ring of a peer who sees what is written there at once, and so
// most likely is taking messages out at this moment: that costs less than a send that waits in the queue.
// When it has been in vain the message leaves the cache window, or others are in the queue, and nobody waits
// here. Now and then it makes progress once: everything else needs those, and a stream of sends that never
// waits for a request makes none.
func (s *Sends) spinForCreditsLocked(p *peer) bool {
	s.e.mu.assertHeld()
	if !p.polled || p.ch.Due() == channel.DueResize || s.e.waiting.spinTime == 0 ||
		s.e.completionHandler.active() {
		return false
	}
	if s.creditSpins++; s.creditSpins%directRecvInterval == 0 {
		s.e.progress.poll()
		return p.state == peerOpen
	}
	for range creditPolls {
		if p.ch.Ready() {
			given, blocked, err := p.ch.PollCredits()
			if p.ch.Due() != channel.DueNothing {
				s.e.progress.deferPeer(p)
			}
			if err != nil {
				s.e.failures.failPeer(p, err)
			}
			if given || blocked || err != nil {
				return given && err == nil
			}
		}
		if s.e.mu.wanted() {
			break
		}
		sys.AwaitLoads()
	}
	return false
}

// creditPolls is how often spinForCredits polls: for a few µs.
const creditPolls = 200

// shouldCoalesceTo tells whether the bytes of a send that nobody waits for yet may be coalesced, to travel
// with others.
func (h *coalescer) shouldCoalesceTo(dst, n int) bool {
	return dst != h.e.rank && h.shouldCoalesce(h.e.peerLocked(dst), n)
}

// startLocked begins a send that has a request. With more its bytes are coalesced, to travel with others.
func (s *Sends) startLocked(r *request, env envelope, dst int, more bool) {
	s.e.mu.assertHeld()
	r.kind, r.rank = kindSend, dst
	if r.view != nil {
		r.msg.StartGathered(env, r.view.bytes())
	} else {
		r.msg.Start(env, r.vec)
	}
	if dst == s.e.rank {
		s.sendSelfLocked(r)
		return
	}
	p := s.e.peerLocked(dst)
	switch p.state {
	case peerFailed:
		s.e.Requests.complete(r, p.cause)
		return
	case peerClosed:
		s.e.Requests.complete(r, ErrFinalized)
		return
	case peerIdle:
		s.e.connections.connectLocked(p)
	}
	if s.e.failures.noted.Load() {
		if err := s.e.Recovery.revokedErr(env.Context); err != nil {
			s.e.Requests.complete(r, err)
			return
		}
	}
	r.setPeer(p)
	if p.state != peerOpen || p.queued() {
		s.queueLocked(p, r)
		return
	}
	if through, err := s.trySendLocked(p, r, more); err != nil {
		p.enqueue(r) // so that it fails with all the others of this peer
		s.e.failures.failPeer(p, err)
	} else if !through {
		s.queueLocked(p, r)
		s.retryIfQueueFullLocked(p)
	}
}

// queueLocked has a send wait for its peer.
func (s *Sends) queueLocked(p *peer, r *request) {
	s.e.mu.assertHeld()
	s.e.recorder.Note(recorder.Queued, r.msg.Context, p.rank, int(r.msg.Tag), r.msg.Total())
	p.enqueue(r)
}

// retryIfQueueFullLocked has the next pass try again to send to a peer whose send queue was full: nothing
// else would. What waits for credits is tried again when they come.
func (s *Sends) retryIfQueueFullLocked(p *peer) {
	s.e.mu.assertHeld()
	if p.ch.TakeQueueFull() {
		s.e.progress.deferPeer(p)
	}
}

// canSendEager tells whether nothing keeps a message from being copied into a slot now, as far as is known
// before that is tried.
func (p *peer) canSendEager(n int) bool {
	return p.state == peerOpen && n <= p.eagerLimit && !p.sendPending() && !p.refusesPayload(n)
}

// canSendShort is canSendEager of a message that is not better announced.
func (p *peer) canSendShort(n int) bool {
	return p.state == peerOpen && n <= p.shortLimit && !p.sendPending() && !p.refusesPayload(n)
}

// refusesPayload tells whether the peer has no memory to spare for a payload.
func (p *peer) refusesPayload(n int) bool { return n > 0 && p.ch.PeerRefusesPayload() }

// trySendLocked hands a send to its protocols; false when there is no room now for all of it. It never
// blocks.
func (s *Sends) trySendLocked(p *peer, r *request, more bool) (through bool, err error) {
	s.e.mu.assertHeld()
	if sent, err := s.e.coalescer.sendBatch(p, true); !sent {
		return false, err
	}
	if r.view != nil {
		return s.e.views.trySendLocked(p, r)
	}
	m := &r.msg
	for {
		o, begins := channel.Oversized, !m.Started()
		if !r.sync && !p.refusesPayload(m.Total()) && !(len(r.vec) == 1 && m.Total() > p.eagerLimit) {
			var n int
			n, o, err = m.TrySend(p.ch, sendFlags(more))
			p.stats.EagerBytes += uint64(n)
			if err != nil {
				return false, err
			}
		}
		if begins && m.Started() {
			s.e.hook.sent(m.Envelope, p.rank, m.Total())
			begins = false
		}
		switch o {
		case channel.Waiting:
			return false, nil
		case channel.Oversized:
			if ok, err := s.announceLocked(p, r, more); !ok {
				return false, err
			}
			if begins {
				s.e.hook.sent(m.Envelope, p.rank, m.Total())
			}
		}
		if p.ch.Due() == channel.DueResize {
			s.e.progress.deferPeer(p) // the message may be out but for what has the peer look at it
		}
		if m.Started() && m.Done() {
			switch {
			case r.openTransfers == 0:
				if r.announcement == 0 { // else it is counted, and the peer has fetched what was announced
					p.stats.Eager++
				}
				s.e.recorder.Note(recorder.Sent, m.Context, p.rank, int(m.Tag), m.Total())
				s.e.Requests.complete(r, nil)
			case r.cancel == cancelWanted:
				return true, s.e.Cancels.sendWithdrawLocked(p, r)
			}
			return true, nil
		}
	}
}

// announceLocked has the peer fetch a message, or the front element of one, when it has matched it.
func (s *Sends) announceLocked(p *peer, r *request, more bool) (ok bool, err error) {
	s.e.mu.assertHeld()
	m := &r.msg
	var id uint64
	switch {
	case !m.Started() && len(r.vec) == 1:
		id, ok, err = p.fabric.sender.TrySendRTS(p.ch, m.Envelope, r.vec[0], r.token(), more)
		if ok {
			m.MarkAnnounced()
		}
	case !m.Started():
		return m.TrySendHeader(p.ch)
	default:
		id, ok, err = p.fabric.sender.TrySendPiece(p.ch, m.Front(), r.token(), more)
	}
	if ok {
		r.openTransfers++
		if r.announcement == 0 {
			r.announcement = id + 1
			p.stats.Rendezvous++
		}
		s.e.recorder.Note(recorder.Announced, m.Context, p.rank, int(m.Tag), len(m.Front()))
		p.stats.RendezvousBytes += uint64(len(m.Front()))
		m.Skip()
	}
	return ok, err
}

// sendQueuedLocked starts the sends that waited, in order, as far as there is room.
func (s *Sends) sendQueuedLocked(p *peer) {
	s.e.mu.assertHeld()
	if sent, err := s.e.coalescer.sendBatch(p, true); err != nil {
		s.e.failures.failPeer(p, err)
		return
	} else if !sent {
		return
	}
	for p.state == peerOpen && p.queued() {
		r := p.queue[p.head]
		through, err := s.trySendLocked(p, r, p.head+1 < len(p.queue))
		if err != nil {
			s.e.failures.failPeer(p, err)
			return
		}
		if !through {
			s.retryIfQueueFullLocked(p)
			break
		}
		p.dequeue()
	}
	if p.state == peerOpen {
		p.ch.QP().Flush()
	}
}

// sendSelfLocked delivers a message of this rank to itself. What finds no receive is copied if it is small;
// else it stays with the sender, who waits for the receive as he would with any other rank.
func (s *Sends) sendSelfLocked(r *request) {
	s.e.mu.assertHeld()
	env := r.msg.Envelope
	s.e.hook.sent(env, s.e.rank, r.msg.Total())
	if m := s.e.matching.Arrive(env.Context, int32(s.e.rank), env.Tag); m != nil {
		s.e.recorder.Note(recorder.Received, env.Context, s.e.rank, int(env.Tag), r.msg.Total())
		s.e.hook.match(env.Context, s.e.rank, env.Tag, r.msg.Total(), false)
		s.deliverSelfLocked(m.Value, r)
		return
	}
	a := s.e.unexpected.pool.get()
	a.bytes = r.msg.Total()
	if a.bytes > selfCopied || r.sync {
		a.self, r.unexpected, r.observed = r, a, true
		s.e.unexpected.enqueue(a, env, s.e.rank)
		return
	}
	s.e.unexpected.storeSent(a, r)
	s.e.unexpected.enqueue(a, env, s.e.rank)
	s.e.Requests.complete(r, nil)
}

// selfCopied is the size of a message to oneself up to which it is copied when there is no receive for it
// yet.
const selfCopied = 600

// deliverSelfLocked copies a message of this rank into its receive.
func (s *Sends) deliverSelfLocked(r, from *request) {
	s.e.mu.assertHeld()
	r.matched(s.e.rank, int(from.msg.Tag), from.msg.Total())
	at := 0
	for b := range s.e.views.pieces(from) {
		r.copyIn(at, b)
		at += len(b)
	}
	s.e.Recvs.completeLocked(r)
	s.e.Requests.complete(from, nil)
}

// onAnnouncementDone notes what has become of an announcement: with done the peer has all of it.
func (s *Sends) onAnnouncementDone(p *peer, token uint64, done bool, err error) {
	if done {
		s.e.recorder.Note(recorder.Taken, 0, p.rank, 0, 0)
		s.announcementEndedLocked(s.e.Requests.byToken(token))
	}
	s.e.progress.advanceOrFail(p, err)
}

// announcementEndedLocked notes that a send has one announcement less; nil is one that has ended already.
func (s *Sends) announcementEndedLocked(r *request) {
	s.e.mu.assertHeld()
	if r == nil || r.completed() {
		return
	}
	if r.openTransfers--; r.openTransfers == 0 && r.msg.Done() {
		s.e.Requests.complete(r, nil)
	}
}
