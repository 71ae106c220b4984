package engine

import (
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// EventKind is what a Hook is told of.
type EventKind uint8

const (
	EventCallBegin EventKind = iota + 1 // a call of package mpi has come to the engine
	EventCallEnd                        // it returns, after Elapsed
	EventMatch                          // a receive and a message have found each other
	EventSlept                          // a goroutine has slept in a call, for Elapsed
	EventSent                           // the first part of a message has been given to its protocol
	// Of an engine with Config.Decided: a receive or a probe of any source has a number; a message has come,
	// and waits; a receive is complete, and collected
	EventChoice
	EventArrived
	EventCollected
)

// Event is one event. Fields that its kind does not use are zero.
type Event struct {
	Kind       EventKind
	Call       Call          // EventCallBegin, EventCallEnd
	Bytes      int           // EventCallBegin: of the buffer
	Unexpected bool          // EventMatch: the message was there before the receive
	Elapsed    time.Duration // EventCallEnd, EventSlept
	// of messages, and of the kinds after EventSent
	Context   uint32
	Peer, Tag int
	Choice    int // EventChoice, EventCollected: the number of the choice, plus one; or 0
}

// Hook is told of events. Those of calls and sleeps come from any goroutine, without the engine's lock;
// matches come under the lock, so Tell does not call the engine, does not block and is fast. A nil Hook costs
// a branch at each event, and one of the two fields is not nil.
type Hook struct {
	Trace *trace.Buffer // gets calls and messages in as few records as can be; nil for none
	Tell  func(Event)   // nil for none
}

// With is a hook that tells what h does, which may be nil, and calls a function as well.
func (h *Hook) With(tell func(Event)) *Hook {
	switch {
	case h == nil:
		return &Hook{Tell: tell}
	case h.Tell == nil:
		return &Hook{Trace: h.Trace, Tell: tell}
	}
	return &Hook{Trace: h.Trace, Tell: func(e Event) {
		h.Tell(e)
		tell(e)
	}}
}

// Epoch is what the times of calls are relative to: so one word says when a call began.
var Epoch = time.Now()

// begin tells of the beginning of a call, and gives what end wants: the time in the trace's units, or in ns.
func (h *Hook) begin(c Call, bytes int) (start int64) {
	if h != nil {
		start = h.tellBegin(c, bytes)
	}
	return start
}

// end tells of the end of a call, which begin was told the same of.
func (h *Hook) end(c Call, start int64, peer, tag, bytes int) {
	if h != nil {
		h.tellEnd(c, start, peer, tag, bytes)
	}
}

//go:noinline
func (h *Hook) tellBegin(c Call, bytes int) int64 {
	if h.Tell == nil {
		return h.Trace.Stamp()
	}
	h.Tell(Event{Kind: EventCallBegin, Call: c, Bytes: bytes})
	return h.stamp()
}

// stamp is the time in the trace's units, or in ns where there is none.
func (h *Hook) stamp() int64 {
	if h.Trace != nil {
		return h.Trace.Stamp()
	}
	return int64(time.Since(Epoch))
}

//go:noinline
func (h *Hook) tellEnd(c Call, start int64, peer, tag, bytes int) {
	if h.Trace != nil {
		h.Trace.AddCall(start, uint8(c), peer, tag, bytes)
	}
	if h.Tell != nil {
		h.callEnded(c, start)
	}
}

func (h *Hook) callEnded(c Call, start int64) {
	elapsed := time.Duration(h.stamp() - start)
	if h.Trace != nil {
		elapsed = h.Trace.Duration(int64(elapsed))
	}
	h.Tell(Event{Kind: EventCallEnd, Call: c, Elapsed: elapsed})
}

// beginLong tells of the beginning of a call that may last, and gives what endLong wants. The trace gets the
// beginning at once, so the trace of a job that is ended in the call has it. number is the trace's for it.
func (h *Hook) beginLong(c Call, number uint8, peer, tag, bytes int) (start int64) {
	if h != nil {
		start = h.tellLong(c, number, peer, tag, bytes)
	}
	return start
}

//go:noinline
func (h *Hook) tellLong(c Call, number uint8, peer, tag, bytes int) int64 {
	if h.Trace != nil {
		h.Trace.Add(trace.CallBegin, number, 0, peer, tag, bytes)
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventCallBegin, Call: c, Bytes: bytes})
	}
	return h.stamp()
}

func (h *Hook) endLong(c Call, start int64) {
	if h != nil {
		h.tellLongEnd(c, start)
	}
}

//go:noinline
func (h *Hook) tellLongEnd(c Call, start int64) {
	if h.Trace != nil {
		h.Trace.Add(trace.CallEnd, 0, 0, 0, 0, 0)
	}
	if h.Tell != nil {
		h.callEnded(c, start)
	}
}

// beginCollective is beginLong of a collective, which endLong ends.
func (h *Hook) beginCollective(c *Collective) (start int64) {
	if h != nil {
		start = h.tellLong(CallCollective, operationInTrace(c.Tag), AnySource, c.Tag, c.inputLen())
	}
	return start
}

// operationInTrace is the number that a trace has of a collective: those of calls come before it.
func operationInTrace(tag int) uint8 { return uint8(Calls) + uint8(operationOf(tag)) }

// The methods below tell the hook of calls that do not come to the engine as one call: those on windows, and
// Finalize.

// BeginCall tells of the beginning of a call with a buffer, and gives what EndCall wants.
func (h *Hook) BeginCall(c Call, bytes int) (start int64) { return h.begin(c, bytes) }

// EndCall tells of the end of a call, with the world rank that it names.
func (h *Hook) EndCall(c Call, start int64, peer, bytes int) {
	h.end(c, start, peer, AnyTag, bytes)
}

// BeginLong tells of the beginning of a call that may last, and gives what EndLong wants. The calls that it
// consists of come within it.
func (h *Hook) BeginLong(c Call, peer int) (start int64) {
	return h.beginLong(c, uint8(c), peer, AnyTag, 0)
}

// EndLong tells of its end.
func (h *Hook) EndLong(c Call, start int64) { h.endLong(c, start) }

// slept tells that a goroutine has slept in a call.
func (h *Hook) slept(took time.Duration) {
	if h.Trace != nil {
		h.Trace.Add(trace.Slept, 0, 0, 0, 0, int(took))
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventSlept, Elapsed: took})
	}
}

// sleeps tells that a goroutine is about to sleep for a request or in a probe; both may be nil. If it never
// wakes that is all that there is of a call that is written at its end.
func (h *Hook) sleeps(r *request, probed *probed) {
	if h.Trace == nil || r == nil && probed == nil {
		return
	}
	what, peer, tag, bytes := uint8(CallProbe), AnySource, AnyTag, 0
	if r != nil {
		o := r.describe()
		what, peer, tag, bytes = uint8(CallRecv), o.Peer, o.Tag, o.Bytes
		switch {
		case o.Collective:
			what = operationInTrace(o.Tag)
		case o.Send:
			what = uint8(CallSend)
		}
	}
	h.Trace.Add(trace.Sleeps, what, 0, peer, tag, bytes)
}

// The others below are branches that are compiled into their callers; what they branch to is not, so that the
// callers have no room for an Event in their frames.

func (h *Hook) match(context uint32, peer int, tag int32, bytes int, unexpected bool) {
	if h != nil {
		h.tellMatch(context, peer, tag, bytes, unexpected)
	}
}

// sent tells of a message when the first part of it has been given to its protocol. Each message is told of
// once, in the order in which its peer matches those with the same envelope.
func (h *Hook) sent(env envelope, peer, bytes int) {
	if h != nil {
		h.tellSent(env, peer, bytes)
	}
}

func (h *Hook) withdrawn(env envelope, peer int) {
	if h != nil && h.Trace != nil {
		h.traceMessage(trace.Withdrawn, env, peer, 0)
	}
}

func (h *Hook) phase(endpoint, peer, phase int) {
	if h != nil && h.Trace != nil {
		h.Trace.Add(trace.Phase, 0, contextid.OnEndpoint(endpoint, 0), peer, 0, phase)
	}
}

//go:noinline
func (h *Hook) tellSent(env envelope, peer, bytes int) {
	if h.Trace != nil {
		h.traceMessage(trace.Sent, env, peer, bytes)
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventSent, Context: env.Context, Peer: peer, Tag: int(env.Tag), Bytes: bytes})
	}
}

//go:noinline
func (h *Hook) traceMessage(k trace.Kind, env envelope, peer, bytes int) {
	h.Trace.Add(k, 0, env.Context, peer, int(env.Tag), bytes)
}

//go:noinline
func (h *Hook) tellMatch(context uint32, peer int, tag int32, bytes int, unexpected bool) {
	if h.Trace != nil {
		h.Trace.Add(trace.Matched, 0, context, peer, int(tag), bytes)
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventMatch, Context: context, Peer: peer, Tag: int(tag), Bytes: bytes,
			Unexpected: unexpected})
	}
}

// received tells of a message that was taken straight out of its ring, and where that was in Recv of the end
// of this call, which began at start, else 0. It is called under the lock: so the order of messages is that
// in which they were sent.
func (h *Hook) received(context uint32, peer int, tag int32, bytes int, start int64) {
	if h != nil {
		h.tellReceived(context, peer, tag, bytes, start)
	}
}

//go:noinline
func (h *Hook) tellReceived(context uint32, peer int, tag int32, bytes int, start int64) {
	switch {
	case h.Trace == nil:
	case start == 0:
		h.Trace.Add(trace.Matched, 0, context, peer, int(tag), bytes)
	default:
		h.Trace.AddReceive(start, uint8(CallRecv), context, peer, int(tag), bytes)
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventMatch, Context: context, Peer: peer, Tag: int(tag), Bytes: bytes})
	}
}

// noteFailureLocked records a request that fails.
func (t *Requests) noteFailureLocked(r *request) {
	t.e.mu.assertHeld()
	context, tag := r.posted.Context, r.posted.Tag
	if r.kind == kindSend {
		context, tag = r.msg.Context, r.msg.Tag
	}
	t.e.recorder.Note(recorder.Failed, context, r.rank, int(tag), r.bufferLen())
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
