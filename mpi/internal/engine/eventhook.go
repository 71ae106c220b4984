package engine

import (
	"time"

	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// EventKind is what a Hook is told of.
type EventKind uint8

const (
	EventCallBegin EventKind = iota + 1 // a call of package mpi has come to the engine
	EventCallEnd                        // it returns, after Elapsed
	EventMatch                          // a receive and a message have found each other
	EventStep                           // a protocol has made a step
	EventComplete                       // a request is complete
	EventSlept                          // a goroutine has slept in a call, for Elapsed
	EventSent                           // the first part of a message has been given to its protocol
	EventWithdrawn                      // a message that was sent is cancelled
	EventPhase                          // this rank now sends to Peer in phase Bytes
)

// Call says which call an event is of. A call of package mpi that consists of several (Sendrecv) comes as
// those.
type Call uint8

const (
	CallSend Call = iota
	CallSsend
	CallIsend
	CallRecv
	CallIrecv
	CallProbe
	CallWait // of one request, some or all
	CallTest // likewise
	CallCollective
	Calls // how many there are
)

// String is the name of the MPI call, or of the first of its family.
func (c Call) String() string {
	return [Calls]string{"Send", "Ssend", "Isend", "Recv", "Irecv", "Probe", "Wait", "Test", "collectives"}[c]
}

// Step is a step of a protocol.
type Step uint8

const (
	StepAnnounced Step = iota + 1 // bytes were announced
	StepFetch                     // announced bytes begin to come
	StepTaken                     // the peer has all of an announcement
)

// Event is one event. Fields that its kind does not use are zero.
type Event struct {
	Kind       EventKind
	Call       Call
	Step       Step
	Operation  coll.Operation // of CallCollective
	Context    uint32         // EventSent, EventMatch, EventWithdrawn
	Peer       int            // world rank; AnySource for a receive that names none
	Tag        int
	Bytes      int
	Unexpected bool          // EventMatch: the message was there before the receive
	At         time.Duration // since Epoch; EventCallBegin, EventCallEnd
	Elapsed    time.Duration // EventCallEnd, EventSlept
	Err        error         // EventComplete
}

// Hook is told of events. Those of calls and sleeps come from any goroutine, without the engine's lock; all
// others come under the lock, so a Hook does not call the engine, does not block and is fast. A nil Hook
// costs a branch at each event.
type Hook func(Event)

// Epoch is what the times of calls are relative to: so one word says when a call began.
var Epoch = time.Now()

// begin tells of the beginning of a call, and gives what end wants.
func (h Hook) begin(c Call, peer, tag, bytes int) (start time.Duration) {
	if h != nil {
		start = h.tellBegin(c, peer, tag, bytes)
	}
	return start
}

// end tells of the end of a call.
func (h Hook) end(c Call, start time.Duration) {
	if h != nil {
		h.tellEnd(c, start)
	}
}

//go:noinline
func (h Hook) tellBegin(c Call, peer, tag, bytes int) time.Duration {
	now := time.Since(Epoch)
	h(Event{Kind: EventCallBegin, Call: c, Peer: peer, Tag: tag, Bytes: bytes, At: now})
	return now
}

//go:noinline
func (h Hook) tellEnd(c Call, start time.Duration) {
	now := time.Since(Epoch)
	h(Event{Kind: EventCallEnd, Call: c, At: now, Elapsed: now - start})
}

// beginCollective is begin of a collective.
func (h Hook) beginCollective(c *Collective) (start time.Duration) {
	if h != nil {
		start = h.tellCollective(c)
	}
	return start
}

//go:noinline
func (h Hook) tellCollective(c *Collective) time.Duration {
	now := time.Since(Epoch)
	h(Event{Kind: EventCallBegin, Call: CallCollective, Peer: AnySource, Tag: c.Tag, Bytes: len(c.Input),
		Operation: operationOf(c.Tag), At: now})
	return now
}

// The others below are branches that are compiled into their callers; what they branch to is not, so that the
// callers have no room for an Event in their frames.

func (h Hook) match(context uint32, peer int, tag int32, bytes int, unexpected bool) {
	if h != nil {
		h.tellMatch(context, peer, tag, bytes, unexpected)
	}
}

// sent tells of a message when the first part of it has been given to its protocol. Each message is told of
// once, in the order in which its peer matches those with the same envelope.
func (h Hook) sent(env envelope, peer, bytes int) {
	if h != nil {
		h.tellMessage(EventSent, env, peer, bytes)
	}
}

func (h Hook) withdrawn(env envelope, peer int) {
	if h != nil {
		h.tellMessage(EventWithdrawn, env, peer, 0)
	}
}

func (h Hook) phase(peer, phase int) {
	if h != nil {
		h.tellPhase(peer, phase)
	}
}

func (h Hook) step(s Step, peer, bytes int) {
	if h != nil {
		h.tellStep(s, peer, bytes)
	}
}

func (h Hook) complete(r *request) {
	if h != nil {
		h.tellComplete(r)
	}
}

//go:noinline
func (h Hook) tellMessage(k EventKind, env envelope, peer, bytes int) {
	h(Event{Kind: k, Context: env.Context, Peer: peer, Tag: int(env.Tag), Bytes: bytes})
}

//go:noinline
func (h Hook) tellPhase(peer, phase int) {
	h(Event{Kind: EventPhase, Peer: peer, Bytes: phase})
}

//go:noinline
func (h Hook) tellMatch(context uint32, peer int, tag int32, bytes int, unexpected bool) {
	h(Event{Kind: EventMatch, Context: context, Peer: peer, Tag: int(tag), Bytes: bytes,
		Unexpected: unexpected})
}

//go:noinline
func (h Hook) tellStep(s Step, peer, bytes int) {
	h(Event{Kind: EventStep, Step: s, Peer: peer, Bytes: bytes})
}

//go:noinline
func (h Hook) tellComplete(r *request) {
	h(Event{Kind: EventComplete, Peer: r.rank, Bytes: r.status.Bytes, Err: r.err})
}

// noteFailure records a request that fails.
func (e *Engine) noteFailure(r *request) {
	context, tag := r.posted.Context, r.posted.Tag
	if r.kind == kindSend {
		context, tag = r.msg.Context, r.msg.Tag
	}
	e.recorder.Note(recorder.Failed, context, r.rank, int(tag), r.bufferLen())
}

// OperationNames are the names of collectives, by the number that the recorder has of them.
func OperationNames() []string {
	names := make([]string, 1<<operationBits)
	for i := range names[:OperationSetup] {
		names[i] = coll.Operation(i).String()
	}
	names[OperationSetup] = "a new communicator"
	return names
}
