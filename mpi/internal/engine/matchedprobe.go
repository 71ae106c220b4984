package engine

import "fmt"

// Message is a handle to a message that a matched probe took out of the table: no other receive gets it. The
// zero Message names none.
type Message struct {
	a   *unexpectedMessage
	gen uint32
}

// ErrNoMessage is the error for a Message that names no message; it wraps ErrRequest.
var ErrNoMessage = fmt.Errorf("%w: the message was received already, or there never was one", ErrRequest)

// Probes probes for messages, and stores those that matched probes have taken out of the matching table,
// until they are received.
//
// Invariants, under the lock: a message is in messages exactly while a Message can receive it, at
// probedIndex-1. Its bytes are fetched as soon as its sender cancels the send.
type Probes struct {
	e        *Engine
	messages []*unexpectedMessage
}

// Mprobe waits for a message that a receive with the same arguments would match, and takes it for Mrecv. The
// canceller, which may be nil, ends it.
func (q *Probes) Mprobe(context uint32, src, tag int, canceller *Canceller) (m Message, st Status,
	err error) {
	e := q.e
	start := e.hook.begin(CallProbe, 0)
	defer e.hook.end(CallProbe, start, src, tag, 0)
	ok := false
	var since probeFailures
	e.waiting.waitUntilProbed(0, nil, func() bool {
		if ok || err != nil {
			return true // a further check: the message is taken
		}
		m, st, ok, err = q.match(context, src, tag)
		if err == nil && !ok {
			err = since.end(e, context, src, canceller)
		}
		return ok || err != nil
	}, &probed{context: context, source: src, tag: tag, canceller: canceller})
	return m, st, err
}

// Improbe takes such a message if there is one. It makes at most one pass.
func (q *Probes) Improbe(context uint32, src, tag int) (Message, Status, bool, error) {
	e := q.e
	start := e.hook.begin(CallProbe, 0)
	defer e.hook.end(CallProbe, start, src, tag, 0)
	e.mu.Lock()
	m, st, ok, err := q.match(context, src, tag)
	if !ok && err == nil {
		e.progress.poll()
		m, st, ok, err = q.match(context, src, tag)
	}
	e.mu.Unlock()
	if !ok {
		e.noteUnsuccessful()
	}
	return m, st, ok, err
}

func (q *Probes) match(context uint32, src, tag int) (Message, Status, bool, error) {
	st, ok, err := q.probe(context, src, tag)
	if !ok {
		return Message{}, st, false, err
	}
	a := q.e.matching.Probe(context, int32(st.Source), int32(tag)).Value
	q.e.matching.RemoveUnexpected(&a.match)
	q.e.hook.match(a.match.Context, int(a.match.Source), a.match.Tag, a.bytes, true)
	q.messages = append(q.messages, a)
	a.probedIndex = len(q.messages)
	return Message{a, a.gen}, st, true, nil
}

// remove removes an unexpected message from those that Messages hold.
func (q *Probes) remove(a *unexpectedMessage) {
	last := len(q.messages)
	q.messages[last-1].probedIndex = a.probedIndex
	q.messages[a.probedIndex-1] = q.messages[last-1]
	q.messages[last-1] = nil
	q.messages = q.messages[:last-1]
	a.probedIndex = 0
}

// Mrecv receives a matched message, as Recv would.
func (q *Probes) Mrecv(m Message, buf []byte, elem int) (Status, error) {
	e := q.e
	start := e.hook.begin(CallRecv, len(buf))
	defer e.hook.end(CallRecv, start, AnySource, AnyTag, len(buf))
	e.mu.Lock()
	r, err := q.startRecv(m, buf, nil, elem)
	e.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	return e.waiting.wait(r)
}

// Imrecv begins to receive a matched message. buf must not be used until the request is complete.
func (q *Probes) Imrecv(m Message, buf []byte, elem int) (Request, error) {
	e := q.e
	start := e.hook.begin(CallIrecv, len(buf))
	defer e.hook.end(CallIrecv, start, AnySource, AnyTag, len(buf))
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := q.startRecv(m, buf, nil, elem)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

// ImrecvVec is Imrecv into several buffers, one after the other.
func (q *Probes) ImrecvVec(m Message, vec [][]byte, elem int) (Request, error) {
	e := q.e
	start := e.hook.begin(CallIrecv, bytesIn(vec))
	defer e.hook.end(CallIrecv, start, AnySource, AnyTag, bytesIn(vec))
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := q.startRecv(m, nil, vec, elem)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

// startRecv begins to receive a message into vec, or into buf if vec is nil.
func (q *Probes) startRecv(m Message, buf []byte, vec [][]byte, elem int) (*request, error) {
	a := m.a
	if a == nil || a.gen != m.gen {
		return nil, ErrNoMessage
	}
	if q.e.stopped != nil {
		return nil, q.e.stopped
	}
	q.remove(a)
	r := q.e.Requests.get()
	r.kind, r.rank = kindRecv, int(a.match.Source)
	if r.vec = vec; vec == nil {
		r.contiguous(buf)
	}
	r.status.Elem = elem
	r.posted.Context, r.posted.Source, r.posted.Tag = a.match.Context, a.match.Source, a.match.Tag
	if a.fetch != nil {
		a.recv = r
		return r, nil
	}
	q.deliver(r, a)
	return r, nil
}

// deliver delivers a message that Probes held to its receive.
func (q *Probes) deliver(r *request, a *unexpectedMessage) {
	if a.fetchErr == nil {
		q.e.Recvs.deliverUnexpectedLocked(r, a)
		return
	}
	r.status.Source, r.status.Tag = int(a.match.Source), int(a.match.Tag)
	q.e.Requests.complete(r, a.fetchErr)
	q.e.unexpected.release(a)
}

// fetchForMessage fetches the bytes of a message that a Message holds, because its sender cancels the send,
// and the Message may never be received: a matched message cannot be withdrawn.
func (q *Probes) fetchForMessage(a *unexpectedMessage) {
	if a.fetch != nil || a.local() {
		return
	}
	r := q.e.Requests.get()
	r.kind, r.rank, r.allArrived = kindRecv, int(a.match.Source), true
	r.contiguous(make([]byte, a.bytes))
	r.status.Source, r.status.Tag, r.status.Bytes = r.rank, int(a.match.Tag), a.bytes
	r.fetchesFor, r.observed = a, true
	a.fetch = r
	q.e.Recvs.placePartsLocked(r, a)
	q.e.Recvs.completeIfWholeLocked(r)
	q.e.Requests.detach(r)
}

// fetchedForMessage is called when the fetch of fetchForMessage has ended: the message has its bytes, or will
// never have them.
func (q *Probes) fetchedForMessage(r *request) {
	a := r.fetchesFor
	r.fetchesFor, a.fetch, a.fetchErr = nil, nil, r.err
	if a.fetchErr == nil {
		q.e.unexpected.releaseParts(a)
		if a.bytes > 0 {
			a.parts = append(a.parts, part{payload: r.vec[0]})
			q.e.unexpected.bytes += a.bytes
		}
	}
	if u := a.recv; u != nil {
		a.recv = nil
		q.deliver(u, a)
	}
}

// copyToMessage ends a send of this rank to itself whose message a Message holds: its bytes are copied, and
// the send is complete.
func (q *Probes) copyToMessage(r *request) {
	a := r.unexpected
	a.self = nil
	q.e.unexpected.storeSent(a, r)
	q.e.Requests.complete(r, nil)
}
