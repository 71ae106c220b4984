package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Probe waits for a message that a Recv with the same arguments would receive, and does not take it.
// Status.Bytes returns its size, and Status.Count is the same: no receive has said yet what the elements are
// (MPI 4.1, 3.8.1). If several goroutines receive, another one may get the message first: use Mprobe then, or
// RecvSlice.
func Probe(c *Comm, src, tag int) (Status, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return nullStatus(), nil
	}
	var st engine.Status
	if err == nil {
		st, err = c.e.Probes.Probe(c.context, c.worldRank(src), tag, c.canceller)
	}
	if err != nil {
		return Status{}, c.fail("Probe", src, tag, err)
	}
	return c.statusOf(st), nil
}

// Iprobe reports whether there is such a message now. It does not block. Status.Count is in bytes.
func Iprobe(c *Comm, src, tag int) (Status, bool, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return nullStatus(), true, nil
	}
	var st engine.Status
	var ok bool
	if err == nil {
		st, ok, err = c.e.Probes.Iprobe(c.context, c.worldRank(src), tag)
	}
	if err != nil {
		return Status{}, false, c.fail("Iprobe", src, tag, err)
	}
	return c.statusOf(st), ok, nil
}

// Message is a message that Mprobe has reserved, so that no other receive can match it (MPI 4.1, 3.8.2). It
// must be received, once, by Mrecv or Imrecv. No context ends a Message: it can still be received when the
// context of the handle that it was probed through has ended. The zero Message names no message.
type Message struct {
	c           *Comm // a handle without a context
	m           engine.Message
	source, tag int
}

// Mprobe waits for a message that a Recv with the same arguments would receive, and reserves it: only Mrecv
// or Imrecv can receive it then. So a goroutine that asks for the size first gets exactly the message that it
// asked about. Status.Bytes returns the size, and Status.Count is in bytes, too. RecvSlice does all of that
// in one call. From ProcNull, Mprobe returns MPI's MPI_MESSAGE_NO_PROC at once, from which Mrecv receives
// nothing.
func Mprobe(c *Comm, src, tag int) (Message, Status, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return noProc(c), nullStatus(), nil
	}
	var m engine.Message
	var st engine.Status
	if err == nil {
		m, st, err = c.e.Probes.Mprobe(c.context, c.worldRank(src), tag, c.canceller)
	}
	if err != nil {
		return Message{}, Status{}, c.fail("Mprobe", src, tag, err)
	}
	s := c.statusOf(st)
	return Message{c.withoutContext(), m, s.Source, s.Tag}, s, nil
}

// Improbe is the non-blocking Mprobe: false means that there is no such message now. Status.Count is in
// bytes.
func Improbe(c *Comm, src, tag int) (Message, Status, bool, error) {
	err := c.checkRecv(src, tag)
	if err == nil && src == ProcNull {
		return noProc(c), nullStatus(), true, nil
	}
	var m engine.Message
	var st engine.Status
	var ok bool
	if err == nil {
		m, st, ok, err = c.e.Probes.Improbe(c.context, c.worldRank(src), tag)
	}
	if err != nil {
		return Message{}, Status{}, false, c.fail("Improbe", src, tag, err)
	}
	if !ok {
		return Message{}, Status{}, false, nil
	}
	s := c.statusOf(st)
	return Message{c.withoutContext(), m, s.Source, s.Tag}, s, true, nil
}

// Mrecv receives the message into buf and returns when it has arrived (MPI 4.1, 3.8.3). Since the message was
// matched, it arrives unless its sender fails, and no context ends the call. buf may be shorter or longer
// than the message, as for Recv. *m is zero afterwards. For a message that was already received, through a
// copy of m too, it returns ErrRequest.
func Mrecv[T any](m *Message, buf []T) (Status, error) {
	r, msg, err := imrecv("Mrecv", m, buf)
	if err != nil {
		return Status{}, err
	}
	st, err := r.c.e.Requests.Wait(r.h)
	r.c.checker.waitedFor(r.c, r.h, &st, err)
	if err != nil {
		err = msg.fail("Mrecv", err)
	}
	return r.c.statusOf(st), err
}

// Imrecv begins to receive the message into buf, which belongs to weft until the request is complete. *m is
// zero afterwards.
func Imrecv[T any](m *Message, buf []T) (Request, error) {
	r, _, err := imrecv("Imrecv", m, buf)
	return r, err
}

func imrecv[T any](op string, m *Message, buf []T) (Request, Message, error) {
	if m == nil || m.c == nil {
		return Request{}, Message{}, asError(op, engine.ErrNoMessage)
	}
	b, err := bufferOf(m.c, buf)
	if err == nil && m.c.job.ended.Load() { // Free of its communicator leaves the message to be received
		err = ErrFinalized
	}
	if err != nil {
		return Request{}, *m, m.fail(op, err)
	}
	msg := *m
	*m = Message{}
	if msg.source == ProcNull {
		return Request{engine.Null, msg.c}, msg, nil
	}
	var r Request
	if msg.c.checker != nil {
		r, err = msg.c.checkedImrecv(&msg, &b)
	} else {
		r, err = msg.c.begun(msg.c.e.Probes.Imrecv(msg.m, b.bytes, b.elem))
	}
	if err != nil {
		return Request{}, msg, msg.fail(op, err)
	}
	return r, msg, nil
}

func (m *Message) fail(op string, err error) error { return m.c.fail(op, m.source, m.tag, err) }

// noProc is MPI_MESSAGE_NO_PROC.
func noProc(c *Comm) Message { return Message{c: c.withoutContext(), source: ProcNull, tag: AnyTag} }
