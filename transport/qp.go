package transport

// QPN is the number of a queue pair, unique in its device and never reused.
type QPN uint32

// QPConfig is the shape of a queue pair.
type QPConfig struct {
	PD     PD
	SendCQ CQ  // where its send requests complete
	RecvCQ CQ  // where its receives complete; may be the same
	SendWR int // depth of the send queue
	RecvWR int // depth of the receive queue
	// Reads and Atomics outstanding at once, each way, 0 to DeviceAttr.MaxReads: the smaller number of the
	// two ends applies to both (R5). With 0 there can be none
	Reads int
}

// QP is one end of a reliable connection. An Endpoint provides it connected.
//
// PostSend is refused unless the QP is in StateReady or StateDraining; in StateClosed and StateError a Recv
// completes flushed. When a QP fails, every posted request completes exactly once, in order, with
// StatusFlushed after the first that failed. So a user that always keeps a Recv posted learns of every end of
// a QP, and Err returns the cause.
type QP interface {
	Num() QPN
	Query() QPAttr

	// PostSend checks the request against the QP and queues it. It refuses an invalid request with the reason
	// and without side effects: an unknown opcode, a limit exceeded, a region of another PD or out of bounds,
	// or lengths that disagree. ErrQueueFull means that the send queue has no room: poll, then post again.
	// PostSend never blocks.
	PostSend(wr *SendWR) error

	// PostRecv queues room for one incoming message. It is allowed in every state.
	PostRecv(wr *RecvWR) error

	// Flush sends what FlagMore held back.
	Flush()

	// Close ends the connection in order. What was posted before is delivered and completed, then this
	// direction is closed. The peer learns of it by ErrClosed once all has been delivered to it, and closes
	// its own direction. Close does not block: drive the CQ until State is StateClosed (both directions
	// closed) or StateError. Posted Recvs then complete flushed.
	Close()

	// Abort cuts the connection. The reason is sent to the peer if that is possible at once. Every posted
	// request completes flushed.
	Abort(cause error)

	// Release frees the QP. If it is open, it is aborted first. Unpolled completions are dropped.
	Release()

	// State returns the QP's state.
	State() State

	// Err returns what ended the QP: nil while it works, ErrClosed after an orderly close by the peer,
	// otherwise the first error, which names the peer and the address.
	Err() error

	// The following are available only if DeviceAttr says so. Otherwise they do nothing, and their results
	// say so.

	InlineWriter
	DirectCopier
	QPPoller
	LaneCounter
	ReadCounter
}

// State is the state of a queue pair.
type State uint8

const (
	// connected, work flows; left by Close (StateClosing), by the peer's close (StateDraining) or by an error
	StateReady State = iota + 1
	// Close was called: posted work still goes out, new work is refused; left when both directions are
	// closed, or by an error
	StateClosing
	// the peer has closed its direction; this end's direction still works until Close; left like StateClosing
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

// QPAttr is the context of a queue pair, as Query returns it.
type QPAttr struct {
	QPConfig
	Num    QPN
	State  State
	Peer   uint32 // the peer's rank
	Port   int    // the channel between the two ranks, see port.go
	Local  string // address of this end
	Remote string // address of the other

	// The completion handlers that have SendCQ and RecvCQ; 0: none (N9).
	SendHandler HandlerID
	RecvHandler HandlerID

	// What the two ends agreed on when they were connected.
	PeerRecv  int  // depth of the peer's receive queue
	PeerReads int  // Reads and Atomics outstanding at once, each way; a peer with more is terminated
	Lanes     int  // most connections that carry the queue pair
	Checksum  bool // every frame has a checksum
}
