package engine

import "fmt"

// Message is a handle to a message that a matched probe took out of the table: no other receive gets it. The zero Message names none.
type Message struct {
	a   *arrival
	gen uint32
}

// ErrNoMessage says that a Message names no message; it wraps ErrRequest.
var ErrNoMessage = fmt.Errorf("%w: the message was received already, or there never was one", ErrRequest)

// Mprobe waits for a message that a receive with the same arguments would match, and takes it for Mrecv. It ends when scope does, which
// may be nil.
func (e *Engine) Mprobe(context uint32, src, tag int, scope *Scope) (m Message, st Status, err error) {
	ok := false
	var since failures
	e.waitUntil(0, nil, func() bool {
		if ok || err != nil {
			return true // asked again: it is taken
		}
		m, st, ok, err = e.match(context, src, tag)
		if err == nil && !ok {
			err = since.end(e, context, src, scope)
		}
		return ok || err != nil
	})
	return m, st, err
}

// Improbe makes one pass and takes such a message if there is one.
func (e *Engine) Improbe(context uint32, src, tag int) (Message, Status, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m, st, ok, err := e.match(context, src, tag)
	if !ok && err == nil {
		e.pass()
		m, st, ok, err = e.match(context, src, tag)
	}
	return m, st, ok, err
}

func (e *Engine) match(context uint32, src, tag int) (Message, Status, bool, error) {
	st, ok, err := e.look(context, src, tag)
	if !ok {
		return Message{}, st, false, err
	}
	a := e.table.Probe(context, int32(src), int32(tag)).Value
	e.table.Take(&a.match)
	e.matched = append(e.matched, a)
	a.at = len(e.matched)
	return Message{a, a.gen}, st, true, nil
}

// release takes an arrival from those that Messages hold.
func (e *Engine) release(a *arrival) {
	last := len(e.matched)
	e.matched[last-1].at = a.at
	e.matched[a.at-1] = e.matched[last-1]
	e.matched[last-1] = nil
	e.matched = e.matched[:last-1]
	a.at = 0
}

// Mrecv receives a message that was matched, as Recv would.
func (e *Engine) Mrecv(m Message, buf []byte, elem int) (Status, error) {
	e.mu.Lock()
	r, err := e.startMrecv(m, buf, elem)
	e.mu.Unlock()
	if err != nil {
		return Status{}, err
	}
	return e.wait(r)
}

// Imrecv begins to receive a message that was matched. buf is weft's until the request is complete.
func (e *Engine) Imrecv(m Message, buf []byte, elem int) (Request, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.startMrecv(m, buf, elem)
	if err != nil {
		return Request{}, err
	}
	return r.handle(), nil
}

func (e *Engine) startMrecv(m Message, buf []byte, elem int) (*request, error) {
	a := m.a
	if a == nil || a.gen != m.gen {
		return nil, ErrNoMessage
	}
	if e.dead != nil {
		return nil, e.dead
	}
	e.release(a)
	r := e.requests.get()
	r.kind, r.rank = kindRecv, int(a.match.Source)
	r.contiguous(buf)
	r.status.Elem = elem
	r.posted.Context, r.posted.Source, r.posted.Tag = a.match.Context, a.match.Source, a.match.Tag
	if a.gone {
		r.status.Source, r.status.Tag = int(a.match.Source), int(a.match.Tag)
		e.complete(r, fmt.Errorf("rank %d has taken back its message of %d bytes", a.match.Source, a.bytes))
		e.discard(a)
		return r, nil
	}
	e.take(r, a)
	return r, nil
}
