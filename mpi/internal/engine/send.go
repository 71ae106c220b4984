package engine

import (
	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Sends executes sends: at once if a message fits a slot and no earlier one waits, else with a request, by
// eager pieces or by rendezvous.
//
// Invariants, under the lock: messages to a peer go out in the order of their sends, so nothing overtakes the
// peer's batch or its queue; a send is in the queue until all of it was passed to its protocols; its request
// is complete when no protocol reads the buffer any more.
type Sends struct {
	e           *Engine
	creditSpins uint32 // sends that found a ring full and polled for credits
	first       eager.First
	unforced    map[*peer]unforced // nil unless a way is forced
}

// register registers the handlers of the sender's messages and completions.
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

// sendMode is the mode of a send.
type sendMode uint8

const (
	sendBlocking    sendMode = iota // the caller waits, so the message is sent at once
	sendNonblocking                 // the message may be delayed to share a write with others
	// the send completes only after its receive was matched. Such a send is always announced, even a small or
	// empty one: the FIN that ends it comes only after the match.
	sendSynchronous
	sendSynchronousNonblocking
)

func (m sendMode) nonblocking() bool { return m&sendNonblocking != 0 }
func (m sendMode) synchronous() bool { return m >= sendSynchronous }

// Send sends buf to a world rank and returns when buf may be reused: when it was copied (eager), or fetched
// by the receiver.
func (s *Sends) Send(context uint32, buf []byte, dst, tag int) error {
	e := s.e
	env := envelope{Context: context, Tag: int32(tag)}
	if e.hook != nil {
		return s.sendHooked(env, buf, dst)
	}
	e.mu.Lock()
	// The common case needs no request: the peer is connected, no earlier message waits, and this one fits.
	if p := e.peers[dst]; p != nil && p.canSendShort(len(buf)) && s.sendEagerLocked(p, env, buf, 0) {
		e.mu.Unlock()
		return nil
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

// Ssend sends buf and returns when its receive has started, and buf may be reused.
func (s *Sends) Ssend(context uint32, buf []byte, dst, tag int) error {
	e := s.e
	start := e.hook.begin(CallSsend, len(buf))
	e.mu.Lock()
	err := s.waitAndUnlock(envelope{Context: context, Tag: int32(tag)}, buf, dst, sendSynchronous)
	e.hook.end(CallSsend, start, dst, tag, len(buf))
	return err
}

// Isend begins a send. buf must not be modified until the request is complete.
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

// Issend begins a synchronous send. buf must not be modified until the request is complete.
func (s *Sends) Issend(context uint32, buf []byte, dst, tag int) (Request, error) {
	e := s.e
	start := e.hook.begin(CallIsend, len(buf))
	h, err := s.nonblocking(envelope{Context: context, Tag: int32(tag)}, buf, dst, sendSynchronousNonblocking)
	e.hook.end(CallIsend, start, dst, tag, len(buf))
	return h, err
}

// IsendVec is Isend of one message from several buffers. They, and the slice of them, must not be modified
// until the request is complete.
func (s *Sends) IsendVec(context uint32, vec [][]byte, dst, tag int) (Request, error) {
	return s.isendVec(context, vec, dst, tag, false)
}

// IssendVec is Issend of one message from several buffers.
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

// bytesIn returns the total length of the buffers of a vector.
func bytesIn(vec [][]byte) (n int) {
	for _, b := range vec {
		n += len(b)
	}
	return n
}

// waitAndUnlock begins a send, with a request if need be, and waits for it.
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
			s.e.mu.Lock() // it was withdrawn: send it in a slot
		}
	}
	r, err := s.requestLocked(env, buf, dst, mode, false)
	s.e.mu.Unlock()
	if err == nil {
		_, err = s.e.waiting.wait(r)
	}
	return err
}

// nonblocking begins a send and returns its handle.
func (s *Sends) nonblocking(env envelope, buf []byte, dst int, mode sendMode) (h Request, err error) {
	s.e.mu.Lock()
	p := s.e.peers[dst]
	if p != nil && p.batch.Count() > 0 && mode == sendNonblocking && s.e.coalescer.continueRun(p, env, buf) {
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

// beginLocked begins a nonblocking send of one buffer. If it returns neither a request nor an error the send
// is complete, and the buffer may be reused.
func (s *Sends) beginLocked(env envelope, buf []byte, dst int, mode sendMode) (*request, error) {
	s.e.mu.assertHeld()
	more := mode.nonblocking() && s.e.stopped == nil && s.e.coalescer.shouldCoalesceTo(dst, len(buf))
	if p := s.e.peers[dst]; p != nil && !mode.synchronous() {
		if more && len(buf) <= p.maxBatched() {
			if s.e.coalescer.add(p, env, buf) {
				return nil, nil
			}
			more = p.burst.coalesced // unless a pass has ended the burst
		}
		if s.sendNowLocked(p, env, buf, sendFlags(more)) {
			return nil, nil
		}
		if len(buf) > p.eagerLimit {
			if r, ok := s.streamThroughRingLocked(p, env, buf); ok {
				return r, nil
			}
		}
		more = more && p.burst.coalesced
	}
	return s.requestLocked(env, buf, dst, mode, more)
}

// requestLocked begins a send with a request.
func (s *Sends) requestLocked(env envelope, buf []byte, dst int, mode sendMode, more bool) (*request, error) {
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
// It ignores errors of the channel: the caller retries with a request and gets the same error.
func (s *Sends) sendNowLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) bool {
	s.e.mu.assertHeld()
	if !p.canSendEager(len(buf)) && !s.canSendAfterBatchLocked(p, len(buf)) {
		return false
	}
	return s.sendEagerLocked(p, env, buf, flags)
}

// sendEagerLocked copies a message into the ring of a peer for which no earlier message waits; false if there
// is no room soon.
func (s *Sends) sendEagerLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) bool {
	s.e.mu.assertHeld()
	sent, err := s.tryEagerLocked(p, env, buf, flags)
	return sent || err == nil && s.sendAfterCreditsLocked(p, env, buf, flags)
}

// tryEagerLocked copies a message into the ring if there is room.
func (s *Sends) tryEagerLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) (bool, error) {
	s.e.mu.assertHeld()
	began := p.copies.beginRingSample(len(buf))
	sent, err := eager.TrySend(p.ch, env, buf, flags)
	if sent {
		s.e.endRingSample(p, began, len(buf))
		p.stats.eager(len(buf))
		s.e.recorder.Note(recorder.Sent, env.Context, p.rank, int(env.Tag), len(buf))
		s.e.hook.sent(env, p.rank, len(buf))
	}
	return sent, err
}

// canSendAfterBatchLocked sends the batch that must precede a message, and reports whether the message can be
// sent now.
func (s *Sends) canSendAfterBatchLocked(p *peer, n int) bool {
	s.e.mu.assertHeld()
	if p.batch.Count() == 0 || p.state != peerOpen {
		return false
	}
	sent, err := s.e.coalescer.sendBatch(p, true)
	return sent && err == nil && p.canSendEager(n)
}

// sendAfterCreditsLocked sends a message that has found no room, if room appears soon. If no credits arrive,
// the message may leave the cache window: the lines of the ring that stay in the sender's cache.
func (s *Sends) sendAfterCreditsLocked(p *peer, env envelope, buf []byte, flags channel.SendFlags) bool {
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
		sent, err := s.tryEagerLocked(p, env, buf, flags)
		if sent || err != nil || !credits {
			return sent
		}
	}
	return false
}

// sendFlags returns the flags of a message that another one follows (more), or none.
func sendFlags(more bool) channel.SendFlags {
	if more {
		return channel.FlagMore
	}
	return 0
}

// spinForCreditsLocked polls for credits from a peer whose ring this rank polls, for a few µs: the peer
// probably frees slots right now, and polling costs less than a send that waits in the queue. It reports
// whether credits arrived. Now and then it makes a pass instead: a stream of sends without requests makes no
// other.
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
	return s.pollForCreditsLocked(p)
}

// shouldCoalesceTo is shouldCoalesce for a world rank, which may be this rank.
func (h *coalescer) shouldCoalesceTo(dst, n int) bool {
	return dst != h.e.rank && h.shouldCoalesce(h.e.peerLocked(dst), n)
}

// startLocked begins a send that has a request. With more set it may be delayed, to share a write with
// others.
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
		if s.sendUnconnectedLocked(p, r) {
			return
		}
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
		p.enqueue(r) // so that it fails with all others to this peer
		s.e.failures.failPeer(p, err)
	} else if !through {
		s.queueLocked(p, r)
		s.retryIfQueueFullLocked(p)
	}
}

// queueLocked makes a send wait for its peer.
func (s *Sends) queueLocked(p *peer, r *request) {
	s.e.mu.assertHeld()
	s.e.recorder.Note(recorder.Queued, r.msg.Context, p.rank, int(r.msg.Tag), r.msg.Total())
	p.enqueue(r)
}

// retryIfQueueFullLocked makes the next pass retry sends to a peer whose send queue was full: no event would.
// Sends that wait for credits are retried when these arrive.
func (s *Sends) retryIfQueueFullLocked(p *peer) {
	s.e.mu.assertHeld()
	if p.ch.TakeQueueFull() {
		s.e.progress.deferPeer(p)
	}
}

// canSendEager reports whether a message of n bytes can be copied into a slot now, as far as is known without
// trying.
func (p *peer) canSendEager(n int) bool {
	return p.state == peerOpen && n <= p.eagerLimit && !p.sendPending() && !p.refusesPayload(n)
}

// canSendShort is canSendEager for a message that should not be announced instead.
func (p *peer) canSendShort(n int) bool {
	return p.state == peerOpen && n <= p.shortLimit && !p.sendPending() && !p.refusesPayload(n)
}

// refusesPayload reports whether the peer has told this rank to announce payload.
func (p *peer) refusesPayload(n int) bool { return n > 0 && p.ch.PeerRefusesPayload() }

// trySendLocked passes a send to its protocols; false if there is no room now for all of it. It never blocks.
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
			s.e.progress.deferPeer(p) // the resize may hold back the write that notifies the peer
		}
		if m.Started() && m.Done() {
			switch {
			case r.openTransfers == 0:
				if r.announcement == 0 { // otherwise it was counted when it was announced
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

// announceLocked announces a message, or the next buffer of its vector.
func (s *Sends) announceLocked(p *peer, r *request, more bool) (ok bool, err error) {
	s.e.mu.assertHeld()
	m := &r.msg
	var id uint64
	switch {
	case !m.Started() && len(r.vec) == 1:
		id, ok, err = p.fabric.sender.TrySendRTS(p.ch, m.Envelope, r.vec[0], r.token(), more)
		if ok {
			m.MarkStarted()
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

// sendQueuedLocked passes queued sends to their protocols, in order, as far as there is room.
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

// sendSelfLocked delivers a message of this rank to itself. Without a receive, a small message is copied; a
// larger one stays in the send's buffer until there is a receive, as with any other rank.
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

// selfCopied is the length up to which a message of this rank to itself is copied if there is no receive.
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

// onAnnouncementDone handles progress of an announcement. done reports that the peer has all its bytes.
func (s *Sends) onAnnouncementDone(p *peer, token uint64, done bool, err error) {
	if done {
		s.e.recorder.Note(recorder.Taken, 0, p.rank, 0, 0)
		s.announcementEndedLocked(s.e.Requests.byToken(token))
	}
	s.e.progress.advanceOrFail(p, err)
}

// announcementEndedLocked counts the end of an announcement of a send; r is nil if the send has ended
// already.
func (s *Sends) announcementEndedLocked(r *request) {
	s.e.mu.assertHeld()
	if r == nil || r.completed() {
		return
	}
	if r.openTransfers--; r.openTransfers == 0 && r.msg.Done() {
		s.e.Requests.complete(r, nil)
	}
}
