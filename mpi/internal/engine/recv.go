package engine

import (
	"cmp"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/mpi/internal/match"
	"github.com/weft-mpi/weft/rendezvous"
	"github.com/weft-mpi/weft/transport"
)

// Wildcards of a receive.
const (
	AnySource = match.AnySource
	AnyTag    = match.AnyTag
)

var errInsideMessage = fmt.Errorf("%w: a message began inside another", transport.ErrProtocol)

// Recvs executes receives, and takes the messages that arrive.
//
// Invariants, under the lock: a message goes to the receive that the table matches, or else to the unexpected
// messages, before the next message of its channel is looked at; a receive is complete when all of its bytes
// are placed and no transfer can place more.
type Recvs struct {
	e           *Engine
	directRecvs uint32   // receives tried directly in the ring
	destination [][]byte // buffers of the fetch that is being started
	// bytes of announced messages that may still be copied before the next pass; may be negative
	copyBudget int
	header     int   // see Config
	began      int64 // for the hook: when the Recv that is receiving directly began; else 0
	// the request of a Recv that has taken a part of its message directly, until that waits for it
	begun *request
}

// Recv receives into buf: directly from the peer's ring if possible, else with a request. elem is the size of
// an element, for st, the status.
func (v *Recvs) Recv(context uint32, buf []byte, src, tag, elem int, st *Status) (err error) {
	e := v.e
	if e.hook != nil {
		return v.recvHooked(context, buf, src, tag, elem, st)
	}
	e.mu.Lock()
	if src != AnySource && tag != AnyTag && v.canRecvDirectLocked(src) {
		p := e.peers[src]
		if n, ok := v.recvDirectLocked(p, envelope{Context: context, Tag: int32(tag)}, buf); ok {
			addr := eager.PrefetchAddr(p.ch, n)
			e.mu.Unlock()
			prefetch(addr)
			st.Source, st.Tag, st.Bytes, st.Elem, st.Cancelled = src, tag, n, elem, false
			if v.partial(n, elem) {
				return v.partialError(st)
			}
			return nil
		}
	}
	*st, err = v.waitAndUnlock(context, buf, src, tag, elem)
	return err
}

// recvHooked is Recv with a hook. A receive that takes its message directly from the ring reports the message
// and the call in one trace record, under the lock.
func (v *Recvs) recvHooked(context uint32, buf []byte, src, tag, elem int, st *Status) (err error) {
	e := v.e
	start := e.hook.begin(CallRecv, len(buf))
	e.mu.Lock()
	if src != AnySource && tag != AnyTag && v.canRecvDirectLocked(src) {
		v.began = start
		p := e.peers[src]
		n, ok := v.recvDirectLocked(p, envelope{Context: context, Tag: int32(tag)}, buf)
		v.began = 0
		if ok {
			addr := eager.PrefetchAddr(p.ch, n)
			e.mu.Unlock()
			prefetch(addr)
			st.Source, st.Tag, st.Bytes, st.Elem, st.Cancelled = src, tag, n, elem, false
			if e.hook.Tell != nil {
				e.hook.callEnded(CallRecv, start)
			}
			if v.partial(n, elem) {
				return v.partialError(st)
			}
			return nil
		}
	}
	*st, err = v.waitAndUnlock(context, buf, src, tag, elem)
	e.hook.end(CallRecv, start, src, tag, len(buf))
	return err
}

// Irecv begins a receive. buf must not be used until the request is complete.
func (v *Recvs) Irecv(context uint32, buf []byte, src, tag, elem int) (Request, error) {
	e := v.e
	if e.hook != nil {
		return v.irecvHooked(context, buf, src, tag, elem)
	}
	return v.nonblocking(context, buf, src, tag, elem)
}

// irecvHooked is Irecv with a hook.
func (v *Recvs) irecvHooked(context uint32, buf []byte, src, tag, elem int) (Request, error) {
	e := v.e
	start := e.hook.begin(CallIrecv, len(buf))
	h, err := v.nonblocking(context, buf, src, tag, elem)
	e.hook.end(CallIrecv, start, src, tag, len(buf))
	return h, err
}

// nonblocking posts a receive and returns its handle.
func (v *Recvs) nonblocking(context uint32, buf []byte, src, tag, elem int) (h Request, err error) {
	e := v.e
	e.mu.Lock()
	r, err := e.Recvs.beginLocked(context, buf, src, tag, elem)
	if err == nil {
		h = r.handle()
	}
	e.mu.Unlock()
	return h, err
}

// IrecvVec is Irecv into several buffers, one after the other. They, and the slice of them, must not be used
// until the request is complete.
func (v *Recvs) IrecvVec(context uint32, vec [][]byte, src, tag, elem int) (Request, error) {
	e := v.e
	if e.hook != nil {
		n := bytesIn(vec)
		start := e.hook.begin(CallIrecv, n)
		defer func() { e.hook.end(CallIrecv, start, src, tag, n) }()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return Request{}, e.stopped
	}
	r := e.Requests.get()
	r.vec = vec
	v.startLocked(r, context, src, tag, elem)
	return r.handle(), nil
}

// waitAndUnlock begins a receive with a request and waits for it.
func (v *Recvs) waitAndUnlock(context uint32, buf []byte, src, tag, elem int) (Status, error) {
	v.e.mu.assertHeld()
	r, err := v.begun, error(nil)
	if r != nil {
		v.begun, r.status.Elem = nil, elem
	} else {
		r, err = v.beginLocked(context, buf, src, tag, elem)
	}
	v.e.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	return v.e.waiting.wait(r)
}

// beginLocked posts a receive into one buffer.
func (v *Recvs) beginLocked(context uint32, buf []byte, src, tag, elem int) (*request, error) {
	v.e.mu.assertHeld()
	if v.e.stopped != nil {
		return nil, v.e.stopped
	}
	r := v.e.Requests.get()
	r.contiguous(buf)
	v.startLocked(r, context, src, tag, elem)
	return r, nil
}

// startLocked starts a receive whose request has its buffer.
func (v *Recvs) startLocked(r *request, context uint32, src, tag, elem int) {
	v.e.mu.assertHeld()
	r.kind, r.rank = kindRecv, src
	r.status.Elem = elem
	r.posted.Context, r.posted.Source, r.posted.Tag = context, int32(src), int32(tag)
	if v.e.Choices.decided != nil && v.e.Choices.holdIfNeeded(r) {
		return
	}
	v.post(r)
}

// post posts a receive, or delivers the unexpected message that it matches.
func (v *Recvs) post(r *request) {
	context, src := r.posted.Context, int(r.posted.Source)
	if m := v.e.matching.Post(&r.posted); m != nil {
		v.e.recorder.Note(recorder.Matched, context, int(m.Source), int(m.Tag), m.Value.bytes)
		v.e.hook.match(context, int(m.Source), m.Tag, m.Value.bytes, true)
		v.deliverUnexpectedLocked(r, m.Value)
		return
	}
	if v.e.failures.noted.Load() {
		if err := v.e.failures.noLiveSource(context, src); err != nil {
			v.e.matching.RemovePosted(&r.posted)
			v.e.Requests.complete(r, err)
		}
	}
}

// deliverUnexpectedLocked delivers an unexpected message to the receive that matched it.
func (v *Recvs) deliverUnexpectedLocked(r *request, a *unexpectedMessage) {
	v.e.mu.assertHeld()
	if a.self != nil {
		v.e.Sends.deliverSelfLocked(r, a.self)
		v.e.unexpected.release(a)
		return
	}
	r.matched(int(a.match.Source), int(a.match.Tag), a.bytes)
	p := a.peer
	if p != nil && p.state != peerOpen && !a.local() {
		v.e.Requests.complete(r, cmp.Or(p.cause, ErrFinalized)) // the rest will not arrive any more
		v.e.unexpected.release(a)
		return
	}
	v.placePartsLocked(r, a)
	if a.incomplete {
		p.incoming.r, p.incoming.a = r, nil
	} else {
		r.allArrived = true
	}
	v.e.unexpected.release(a)
	v.completeIfWholeLocked(r)
}

// placePartsLocked copies the bytes of a message that have arrived into its receive, and fetches those that
// were announced.
func (v *Recvs) placePartsLocked(r *request, a *unexpectedMessage) {
	v.e.mu.assertHeld()
	for i := range a.parts {
		if part := &a.parts[i]; part.announced {
			v.fetchLocked(r, a.peer, part.source)
		} else {
			r.copyIn(r.received, part.payload)
			r.received += len(part.payload)
		}
	}
}

// partial reports whether a message is not a whole number of elements.
func (v *Recvs) partial(bytes, elem int) bool {
	if elem <= 1 {
		return false
	}
	if bytes -= v.header; elem&(elem-1) == 0 {
		return bytes&(elem-1) != 0
	}
	return bytes%elem != 0
}

func (v *Recvs) partialError(st *Status) error {
	return &PartialError{max(0, st.Bytes-v.header), st.Elem, st.Source, st.Tag}
}

// completeLocked completes a receive whose whole message has arrived.
func (v *Recvs) completeLocked(r *request) {
	v.e.mu.assertHeld()
	if v.partial(r.status.Bytes, r.status.Elem) {
		err := v.partialError(&r.status)
		r.status.Bytes = min(r.status.Bytes, r.bufferLen())
		v.e.Requests.complete(r, err)
		return
	}
	if len(r.vec) == 1 && r.status.Bytes <= len(r.vec[0]) {
		v.e.Requests.complete(r, nil)
		return
	}
	if room := r.bufferLen(); r.status.Bytes > room {
		bytes := r.status.Bytes
		r.status.Bytes = room
		v.e.Requests.complete(r, &TruncateError{bytes, room, r.status.Source, r.status.Tag})
		return
	}
	v.e.Requests.complete(r, nil)
}

func (v *Recvs) completeIfWholeLocked(r *request) {
	v.e.mu.assertHeld()
	if r.allArrived && r.openTransfers == 0 && !r.completed() {
		v.completeLocked(r)
	}
}

// drainLocked takes every message that has arrived on a peer's channel.
func (v *Recvs) drainLocked(p *peer) {
	v.e.mu.assertHeld()
	if p.state != peerOpen {
		return
	}
	gathers := p.fabric
	if !p.polled {
		gathers.gather(p.ch)
	}
	open := v.takeArrivedLocked(p)
	if !p.polled {
		gathers.gather(nil)
	}
	if open {
		v.progressAfterRecvLocked(p)
	}
}

// takeArrivedLocked is drainLocked without the progress at its end; false if the peer has failed.
func (v *Recvs) takeArrivedLocked(p *peer) (open bool) {
	v.e.mu.assertHeld()
	for {
		kind, body, ok, err := p.ch.Next()
		if err == nil && !ok {
			return true
		}
		switch {
		case err != nil:
		case kind == channel.Eager: // the common case skips the table
			err = v.onEagerMessage(p, body)
		default:
			err = v.e.routes.message(p, kind, body)
		}
		if err != nil {
			v.e.failures.failPeer(p, err)
			return false
		}
		if p.state != peerOpen {
			return false
		}
		p.ch.Release()
		if p.polled && p.ch.Due() >= channel.DueNow { // the peer goes on filling the ring meanwhile
			if v.e.progress.advancePeer(p); p.state != peerOpen {
				return false
			}
		}
	}
}

// progressAfterRecvLocked advances the protocols after messages were taken from the ring, and returns credits
// for them. A message to the peer carries credits for free, and often the answer to these messages soon does.
// So CREDIT, the message that only returns credits, waits for the next pass, unless the peer might be waiting
// for it, or this pass may be the last for a while.
func (v *Recvs) progressAfterRecvLocked(p *peer) {
	v.e.mu.assertHeld()
	if p.ch.Due() >= channel.DueNow || v.e.hub.sleepers.owned.Load() {
		v.e.progress.advancePeer(p)
	} else if v.e.progress.advanceProtocols(p) && p.ch.Due() != channel.DueNothing {
		v.e.progress.deferPeer(p)
	}
}

// register registers the handlers of the receiver's messages and completions. drainLocked handles
// channel.Eager itself.
func (v *Recvs) register(t *router) {
	t.onMessage(channel.Batch, v.onBatch)
	t.onMessage(channel.First, v.onFirst)
	t.onMessage(channel.More, v.onMore)
	t.onMessage(channel.RTS, v.onRTS)
	t.onMessage(channel.Piece, v.onAnnouncedPiece)
	t.onMessage(channel.Claims, v.onClaims)
	t.onCompletion(rendezvous.ReadOwner, func(p *peer, wc *transport.WC) {
		token, done, err := p.fabric.receiver.OnCompletion(wc)
		v.onFetchDone(p, token, done, err)
	})
	t.onImmediate(immediateGrantEnd, func(p *peer, imm uint32) {
		token, done, err := p.fabric.receiver.OnGrantEnd(p.ch, imm)
		v.onFetchDone(p, token, done, err)
	})
}

func (v *Recvs) onEagerMessage(p *peer, body []byte) error {
	env, payload, err := eager.Parse(body)
	if err != nil {
		return err
	}
	return v.onEager(p, env, payload)
}

// onBatch takes the messages of a batch.
func (v *Recvs) onBatch(p *peer, body []byte) error {
	var run eager.Run
	for len(body) > 0 {
		rest, err := eager.ParseRun(body, &run)
		if err == nil {
			err = v.onRun(p, &run)
		}
		if err != nil {
			return err
		}
		body = rest
	}
	return nil
}

// onRun takes the messages of one run. Consecutive ones that match are recorded as one event.
func (v *Recvs) onRun(p *peer, run *eager.Run) error {
	if p.incoming.active() {
		return errInsideMessage
	}
	matched := 0
	for payloads := run.Payloads; run.Count > 0; run.Count-- {
		if m := v.e.matching.Arrive(run.Context, int32(p.rank), run.Tag); m != nil {
			matched++
			v.deliverLocked(p, m.Value, run.Envelope, payloads[:run.Length])
		} else {
			v.recordReceivedLocked(p, run, matched)
			matched = 0
			if err := v.storeUnexpectedLocked(p, run.Envelope, payloads[:run.Length]); err != nil {
				return err
			}
		}
		payloads = payloads[run.Length:]
	}
	v.recordReceivedLocked(p, run, matched)
	return nil
}

func (v *Recvs) recordReceivedLocked(p *peer, run *eager.Run, messages int) {
	if messages > 0 {
		v.e.recorder.NoteTimes(recorder.Received, run.Context, p.rank, int(run.Tag), run.Length, messages)
	}
}

func (v *Recvs) onFirst(p *peer, body []byte) error {
	env, total, payload, err := eager.ParseFirst(body)
	if err == nil {
		err = v.onFirstPiece(p, env, total, payload)
	}
	if err != nil {
		return err
	}
	return v.onPiece(p, payload)
}

func (v *Recvs) onMore(p *peer, body []byte) error {
	if len(body) == 0 {
		return fmt.Errorf("%w: a piece of a message with no bytes", transport.ErrProtocol)
	}
	return v.onPiece(p, body)
}

func (v *Recvs) onRTS(p *peer, body []byte) error {
	rts, err := rendezvous.ParseRTS(body)
	if err == nil {
		err = v.onFirstPiece(p, envelope{Context: rts.Context, Tag: rts.Tag}, int(rts.Length), nil)
	}
	if err != nil {
		return err
	}
	return v.onAnnouncement(p, rts.Source)
}

func (v *Recvs) onAnnouncedPiece(p *peer, body []byte) error {
	source, err := rendezvous.ParseSource(body)
	if err != nil {
		return err
	}
	return v.onAnnouncement(p, source)
}

// onEager takes a whole message in a slot of its own.
func (v *Recvs) onEager(p *peer, env envelope, payload []byte) error {
	if p.incoming.active() {
		return errInsideMessage
	}
	m := v.e.matching.Arrive(env.Context, int32(p.rank), env.Tag)
	if m == nil {
		return v.storeUnexpectedLocked(p, env, payload)
	}
	v.e.recorder.Note(recorder.Received, env.Context, p.rank, int(env.Tag), len(payload))
	v.deliverLocked(p, m.Value, env, payload)
	return nil
}

// deliverLocked delivers a whole message to the receive that matched it: by far the most common case.
func (v *Recvs) deliverLocked(p *peer, r *request, env envelope, payload []byte) {
	v.e.mu.assertHeld()
	v.e.hook.match(env.Context, p.rank, env.Tag, len(payload), false)
	r.matched(p.rank, int(env.Tag), len(payload))
	switch {
	case v.partial(len(payload), r.status.Elem):
		r.copyIn(0, payload)
		v.completeLocked(r)
	case len(r.vec) == 1 && len(payload) <= len(r.vec[0]):
		wordcopy.Copy(r.vec[0], payload)
		v.e.Requests.complete(r, nil)
	case r.view != nil && len(payload) <= r.view.bytes():
		r.view.Scatter(0, payload)
		v.e.Requests.complete(r, nil)
	default:
		r.copyIn(0, payload)
		v.completeLocked(r)
	}
}

// storeUnexpectedLocked stores a whole message that no receive matches.
func (v *Recvs) storeUnexpectedLocked(p *peer, env envelope, payload []byte) error {
	v.e.mu.assertHeld()
	if v.e.unexpected.discards(env, p.rank, payload) {
		return nil
	}
	if err := p.admitPayload(len(payload)); err != nil {
		return err
	}
	a, err := v.e.unexpected.newMessage(p)
	if err != nil {
		return err
	}
	if a.bytes = len(payload); len(payload) > 0 {
		v.e.unexpected.storePayload(a, payload)
	}
	v.e.unexpected.enqueue(a, env, p.rank)
	return nil
}

// incoming is the message whose pieces are arriving on a channel, and their destination.
type incoming struct {
	r         *request           // the receive that matched it
	a         *unexpectedMessage // or, without a receive, the unexpected message
	remaining int                // bytes that have neither arrived nor been announced
}

func (in *incoming) active() bool { return in.r != nil || in.a != nil }

// onFirstPiece matches a message that arrives in pieces. head is its first bytes.
func (v *Recvs) onFirstPiece(p *peer, env envelope, total int, head []byte) error {
	in := &p.incoming
	if in.active() {
		return errInsideMessage
	}
	in.remaining = total
	if m := v.e.matching.Arrive(env.Context, int32(p.rank), env.Tag); m != nil {
		in.r = m.Value
		v.matchArrivingLocked(p, in.r, env, total)
		return nil
	}
	if v.e.unexpected.discards(env, p.rank, head) {
		in.r = v.newDiscardReceiveLocked(env.Context, p.rank, env.Tag)
		in.r.setPeer(p)
		in.r.detached = true
		return nil
	}
	a, err := v.e.unexpected.newMessage(p)
	if err != nil {
		return err
	}
	in.a = a
	in.a.bytes, in.a.incomplete = total, true
	v.e.unexpected.enqueue(in.a, env, p.rank)
	return nil
}

// matchArrivingLocked gives a message whose pieces arrive, of total bytes, to its receive.
func (v *Recvs) matchArrivingLocked(p *peer, r *request, env envelope, total int) {
	v.e.mu.assertHeld()
	v.e.recorder.Note(recorder.Received, env.Context, p.rank, int(env.Tag), total)
	v.e.hook.match(env.Context, p.rank, env.Tag, total, false)
	r.setPeer(p)
	r.matched(p.rank, int(env.Tag), total)
}

// onPiece takes the next bytes of the message that is arriving.
func (v *Recvs) onPiece(p *peer, payload []byte) error {
	in := &p.incoming
	if !in.active() || len(payload) > in.remaining {
		return fmt.Errorf("%w: %d bytes more where a message has %d to come", transport.ErrProtocol,
			len(payload), in.remaining)
	}
	in.remaining -= len(payload)
	if r := in.r; r != nil {
		r.copyIn(r.received, payload)
		r.received += len(payload)
	} else if len(payload) > 0 {
		if err := p.admitPayload(len(payload)); err != nil {
			return err
		}
		v.e.unexpected.storePayload(in.a, payload)
	}
	v.onPieceDone(in)
	return nil
}

// onAnnouncement takes the announcement of the next bytes of the message that is arriving: all of them, or
// one buffer of its vector.
func (v *Recvs) onAnnouncement(p *peer, s rendezvous.Source) error {
	in := &p.incoming
	if !in.active() || s.Length > uint64(in.remaining) {
		return fmt.Errorf("%w: %d bytes announced where a message has %d to come", transport.ErrProtocol,
			s.Length, in.remaining)
	}
	in.remaining -= int(s.Length)
	if r := in.r; r != nil {
		if v.fetchLocked(r, p, s); p.state != peerOpen {
			return nil // the peer has failed, and the receive with it
		}
	} else {
		p.recordAnnouncement(in.a, s)
	}
	v.onPieceDone(in)
	return nil
}

// onPieceDone ends the message if the piece was its last.
func (v *Recvs) onPieceDone(in *incoming) {
	if in.remaining > 0 {
		return
	}
	r, a := in.r, in.a
	in.r, in.a = nil, nil
	if a != nil {
		a.incomplete = false
		return
	}
	r.allArrived = true
	v.completeIfWholeLocked(r)
}

// onClaims takes CLAIMS: where both ends of a transfer claim the pages that they copy.
func (v *Recvs) onClaims(p *peer, body []byte) error {
	d, err := rendezvous.ParseClaims(body)
	if err != nil {
		return err
	}
	return p.fabric.receiver.OnClaims(p.ch, d)
}

// copyBudgetPerPass bounds the bytes of announced messages that one pass copies, so that other peers are
// served.
const copyBudgetPerPass = 4 << 20

// fetchLocked fetches the next announced bytes of a message into the receive that matched it.
func (v *Recvs) fetchLocked(r *request, p *peer, s rendezvous.Source) {
	v.e.mu.assertHeld()
	if r.completed() {
		return // it has failed already
	}
	if p.state != peerOpen {
		v.e.Requests.complete(r, cmp.Or(p.cause, ErrFinalized))
		return
	}
	r.setPeer(p)
	v.e.recorder.Note(recorder.Fetching, 0, p.rank, 0, int(s.Length))
	r.openTransfers++
	from := r.received
	r.received += int(s.Length)
	var done bool
	var err error
	if r.view != nil || s.Key == 0 {
		v.fetchStagedLocked(r, p, s, from)
		return
	}
	v.destination = r.bufferRange(v.destination[:0], from, r.received)
	if scattered(len(v.destination), int(s.Length)) {
		v.fetchStagedLocked(r, p, s, from)
		return
	}
	if len(v.destination) == 1 && int(s.Length) <= v.copyBudget {
		if done, err = p.fabric.receiver.TryCopy(p.ch, s, v.destination[0]); done {
			v.copyBudget -= int(s.Length)
		}
	}
	if !done && err == nil {
		done, err = p.fabric.receiver.Start(p.ch, s, v.destination, r.token())
	}
	v.fetchBegunLocked(r, p, done, err)
}

// fetchStagedLocked is fetchLocked for bytes, from position from on, that are not contiguous at one of the
// ends.
func (v *Recvs) fetchStagedLocked(r *request, p *peer, s rendezvous.Source, from int) {
	v.e.mu.assertHeld()
	want := max(min(int(s.Length), r.bufferLen()-from), 0)
	if r.view != nil && p.fabric.receiver.ReadsToView(s) {
		done, err := p.fabric.receiver.StartView(p.ch, s, r.view, from, want, r.token())
		v.fetchBegunLocked(r, p, done, err)
		return
	}
	done, err := p.fabric.receiver.StartStaged(p.ch, s, from, want, r.token(), want <= v.copyBudget)
	if done {
		v.copyBudget -= want
	}
	v.fetchBegunLocked(r, p, done, err)
}

// scattered reports whether bytes for so many buffers are received through staging memory: a copy takes less
// than a transfer for each short buffer, and a device does not have any number of regions.
func scattered(buffers, bytes int) bool {
	return buffers > 1 && bytes < buffers*leastTransfer || buffers > mostTransfers
}

const (
	leastTransfer = 2 << 10 // bytes, on average
	mostTransfers = 4 << 10
)

// fetchBegunLocked handles the result of the start of a fetch. done reports that the fetch has ended too.
func (v *Recvs) fetchBegunLocked(r *request, p *peer, done bool, err error) {
	v.e.mu.assertHeld()
	if done {
		r.openTransfers--
	}
	if err != nil {
		v.e.failures.failPeer(p, err)
		if !r.completed() { // the rendezvous receiver did not know it
			v.e.Requests.complete(r, cmp.Or(p.cause, err))
		}
	} else {
		v.e.progress.deferUnsent(p)
	}
}

// onFetchDone handles progress of a fetch. done reports that all bytes have arrived.
func (v *Recvs) onFetchDone(p *peer, token uint64, done bool, err error) {
	if r := v.e.Requests.byToken(token); done && r != nil && !r.completed() {
		r.openTransfers--
		v.completeIfWholeLocked(r)
	}
	v.e.progress.advanceOrFail(p, err)
}
