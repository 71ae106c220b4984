package transport

// QPN is the number of a queue pair, unique in its device and never used twice.
type QPN uint32

// QPConfig is the shape of a queue pair.
type QPConfig struct {
	PD     PD
	SendCQ CQ  // where its send requests complete
	RecvCQ CQ  // where its receives complete; may be the same
	SendWR int // depth of the send queue
	RecvWR int // depth of the receive queue
	Reads  int // outstanding Reads and Atomics that it begins; the peer's limit counts too
}

// QP is one end of a reliable connection. It comes connected from an Endpoint.
//
// Work on a QP that is not in StateReady is refused (PostSend) or flushed. When a QP fails, every posted
// request completes exactly once, in order, StatusFlushed after the first that failed: so a user who always
// keeps a Recv posted hears of every end of a QP, and Err tells the cause.
type QP interface {
	Num() QPN
	Query() QPAttr

	// PostSend checks the request against the QP and queues it; a request that cannot be right (no such
	// opcode, beyond a limit, a region of another PD or out of bounds, lengths that disagree) is refused with
	// the reason and leaves no trace. ErrQueueFull says that the send queue has no room: poll, then post
	// again. It never blocks.
	PostSend(wr *SendWR) error

	// PostRecv queues room for one incoming message. Allowed in every state; in StateError it completes
	// flushed.
	PostRecv(wr *RecvWR) error

	// Flush sends what FlagMore held back.
	Flush()

	// Close ends the connection in order: what was posted before it is delivered and completed, then this
	// direction is closed; the peer hears of it with ErrClosed once all has been delivered to it, and closes
	// its own. It does not block: drive the CQ until State is StateClosed (both directions closed) or
	// StateError. Posted Recvs complete flushed then.
	Close()

	// Abort cuts the connection: the peer is told why if that can be said at once, every posted request
	// completes flushed.
	Abort(cause error)

	// Release gives the QP back. An open one is aborted first. Completions that nobody has polled are
	// dropped.
	Release()

	// State tells where the QP is in its life.
	State() State

	// Err is what ended the QP: nil while it is well, ErrClosed after an orderly close by the peer, otherwise
	// the first error, which names the peer and the address.
	Err() error

	// What follows is there only where DeviceAttr says so; elsewhere it does nothing and reports that.

	InlineWriter
	Getter
	QPPoller
	LaneCounter
}

// State of a queue pair.
type State uint8

const (
	// connected, work flows; left by Close (StateClosing), by the peer's close (StateDraining) or by an error
	StateReady State = iota + 1
	// Close was called: posted work still goes out, new work is refused; left when both directions are
	// closed, or by an error
	StateClosing
	// the peer has closed its direction: ours still works until Close; left as StateClosing is
	StateDraining
	StateClosed // both directions closed in order; final
	StateError  // cut: everything completes flushed; final
)

func (s State) String() string {
	switch s {
	case StateReady:
		return "ready"
	case StateClosing:
		return "closing"
	case StateDraining:
		return "draining"
	case StateClosed:
		return "closed"
	case StateError:
		return "error"
	}
	return "unknown state"
}

// QPAttr is the context of a queue pair, as Query finds it.
type QPAttr struct {
	QPConfig
	Num    QPN
	State  State
	Peer   uint32 // identity of the peer
	Local  string // address of this end
	Remote string // address of the other

	// What the two ends agreed on when they were connected.
	PeerRecv  int  // depth of the peer's receive queue
	PeerReads int  // Reads that the peer answers at once
	Lanes     int  // connections that carry the queue pair at most
	Checksum  bool // every frame has a checksum
}
