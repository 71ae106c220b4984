package engine

import (
	"time"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/internal/recorder"
	"github.com/weft-mpi/weft/internal/trace"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// EventKind is the kind of an Event.
type EventKind uint8

const (
	EventCallBegin EventKind = iota + 1 // a call of package mpi begins
	EventCallEnd                        // it returns, after Elapsed
	EventMatch                          // a receive has matched a message
	EventSlept                          // a goroutine has slept in a call, for Elapsed
	EventSent                           // the first part of a message was passed to its protocol
	// Only with Config.Decided: a receive or probe of any source got a number; an unexpected message has
	// arrived; a receive was collected
	EventChoice
	EventArrived
	EventCollected
)

// Event is one event. Fields that its kind does not use are zero.
type Event struct {
	Kind       EventKind
	Call       Call          // EventCallBegin, EventCallEnd
	Bytes      int           // EventCallBegin: length of the buffer
	Unexpected bool          // EventMatch: the message was there before the receive
	Elapsed    time.Duration // EventCallEnd, EventSlept
	// of the message, or for EventChoice of the receive or probe
	Context   uint32
	Peer, Tag int
	Choice    int // EventChoice, EventCollected: the number of the choice, plus one; 0 for none
}

// Hook receives events, for traces, profiles and tests; package recorder keeps the latest events for reports,
// and Stats only counts. Events of calls and sleeps come from any goroutine, without the engine's lock. All
// others come under the lock, so Tell must not call the engine or block, and must be fast. A nil Hook costs a
// branch at each event. At least one of the fields is not nil.
type Hook struct {
	Trace *trace.Buffer // gets calls and messages, in as few records as possible; nil for none
	Tell  func(Event)   // nil for none
}

// With returns a hook that reports to h, which may be nil, and also calls tell.
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

// Epoch is the origin of the times of calls, so that a time fits one word.
var Epoch = time.Now()

// begin reports the beginning of a call. It returns the start time for end, in the trace's units or in ns.
func (h *Hook) begin(c Call, bytes int) (start int64) {
	if h != nil {
		start = h.tellBegin(c, bytes)
	}
	return start
}

// end reports the end of a call.
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

// stamp returns the time in the trace's units, or in ns without a trace.
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

// beginLong reports the beginning of a call that may last, and returns the start time for endLong. The trace
// gets the beginning at once, so the trace of a job that is ended in the call has it. number is the call's
// number in the trace.
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

// beginCollective is beginLong for a collective.
func (h *Hook) beginCollective(c *Collective) (start int64) {
	if h != nil {
		start = h.tellLong(CallCollective, operationInTrace(c.Tag), AnySource, c.Tag, c.inputLen())
	}
	return start
}

// operationInTrace returns the number of a collective in a trace, where the numbers of calls come first.
func operationInTrace(tag int) uint8 { return uint8(Calls) + uint8(operationOf(tag)) }

// The methods below report calls that are not a single call of the engine: those on windows, and Finalize.

// BeginCall reports the beginning of a call with a buffer. It returns the start time for EndCall.
func (h *Hook) BeginCall(c Call, bytes int) (start int64) { return h.begin(c, bytes) }

// EndCall reports the end of a call, with the world rank that it names.
func (h *Hook) EndCall(c Call, start int64, peer, bytes int) {
	h.end(c, start, peer, AnyTag, bytes)
}

// BeginLong reports the beginning of a call that may last. It returns the start time for EndLong. Events of
// the calls that it consists of come in between.
func (h *Hook) BeginLong(c Call, peer int) (start int64) {
	return h.beginLong(c, uint8(c), peer, AnyTag, 0)
}

// EndLong reports the end of a call that BeginLong began.
func (h *Hook) EndLong(c Call, start int64) { h.endLong(c, start) }

// slept reports that a goroutine has slept in a call.
func (h *Hook) slept(took time.Duration) {
	if h.Trace != nil {
		h.Trace.Add(trace.Slept, 0, 0, 0, 0, int(took))
	}
	if h.Tell != nil {
		h.Tell(Event{Kind: EventSlept, Elapsed: took})
	}
}

// sleeps reports that a goroutine is about to sleep for a request or in a probe; both may be nil. If it never
// wakes, this is the only trace of a call that is recorded at its end.
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

// The others below are nil checks, to be inlined; the bodies are noinline, so that an Event does not enlarge
// the callers' stack frames.

func (h *Hook) match(context uint32, peer int, tag int32, bytes int, unexpected bool) {
	if h != nil {
		h.tellMatch(context, peer, tag, bytes, unexpected)
	}
}

// sent reports a message when its first part was passed to its protocol. Each message is reported once, in
// the order in which its peer matches those with the same envelope.
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

// received reports a message that was taken directly from its ring. If start is not 0, the message was taken
// by a Recv that began at start, and received reports the end of that call to the trace as well. It is called
// under the lock, so messages are reported in the order in which they were sent.
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

// OperationNames returns the names of collectives, by their number in the recorder.
func OperationNames() []string {
	names := make([]string, 1<<operationBits)
	for i := range names[:OperationSetup] {
		names[i] = coll.Operation(i).String()
	}
	names[OperationSetup] = "a new communicator, or a call on values"
	names[OperationMailboxes] = "the set-up of mailboxes"
	return names
}
