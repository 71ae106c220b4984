package transport

// Opcode says what a work request does.
type Opcode uint8

const (
	OpSend  Opcode = iota + 1 // untagged: into the peer's next posted Recv
	OpWrite                   // into the peer's memory; the peer is not notified
	// OpWrite, then Imm is delivered through the peer's next posted Recv, whose memory is not written
	OpWriteImm
	OpRead // out of the peer's memory into ours
	OpRecv // only in completions: a posted Recv was consumed
	// Atomic: adds Operand to a word of the peer's memory; returns its previous value
	OpFetchAdd
)

// Flags modify a send work request. They are combined by OR.
type Flags uint8

const (
	// FlagSignaled requests a completion. Without it, a completion comes only if the request fails. The
	// poster may then reuse the buffers when a later signalled request of the same QP completes, or when its
	// protocol tells it that the peer has the bytes.
	FlagSignaled Flags = 1 << iota
	// FlagInline makes the provider copy the bytes during the call: the buffers belong to the poster when
	// PostSend returns.
	FlagInline
	// FlagSolicited marks a Send or WriteImm whose completion at the peer is worth an event.
	FlagSolicited
	// FlagFence holds the request back until all earlier Reads and Atomics of this QP are complete.
	FlagFence
	// FlagMore says that another request follows at once, so the provider may hold this one back to send both
	// together. Held-back requests go out with the first request without the flag, at QP.Flush, at CQ.Poll,
	// or when enough have accumulated.
	FlagMore
	// FlagNotify makes the completion of this request raise an event of its CQ, as if RequestNotify had asked
	// for it.
	FlagNotify
)

// SGE is one element of a gather or scatter list: Length bytes of a local region from Offset.
type SGE struct {
	MR     MR
	Offset int
	Length int
}

// Segment is a range of the peer's memory: Length bytes from Offset of the region that Key names.
type Segment struct {
	Key    Key
	Offset uint64
	Length uint64
}

// SendWR is a request for the send queue. The provider copies what it needs of it: the struct and its slices
// belong to the caller again when PostSend returns, but not the memory that they name.
type SendWR struct {
	ID    uint64 // returned in the completion
	Op    Opcode // any but OpRecv
	Flags Flags  // FlagInline only for Sends and Writes
	// gather list (Send, Write) or scatter list (Read); may be empty for a message of no bytes. Atomic: one
	// element of 8 bytes
	Local []SGE
	// Write: one segment, as long as Local in total (none for a Write of no bytes); Read: one or more, as
	// long as Local in total; Atomic: see the package comment
	Remote  []Segment
	Imm     uint32 // OpWriteImm
	Operand uint64 // OpFetchAdd
	// OpRead: the lane over which the peer sends the answer (R1); the answer waits while that lane is full.
	// AnyLane, or a lane that the peer does not have or loses meanwhile, leaves the choice to the peer.
	// Without DeviceAttr.Lanes the value is checked and has no effect
	Lane Lane
}

// RecvWR is a request for the receive queue: room for one Send, or one Write with immediate.
type RecvWR struct {
	ID     uint64
	Local  []SGE // scatter list; may be empty
	Notify bool  // its completion raises an event, as with FlagNotify
}

// WC is a work completion.
type WC struct {
	ID     uint64
	QP     QPN
	Op     Opcode // of the request that completed; OpRecv for a posted Recv
	Status Status
	HasImm bool
	Bytes  int    // placed by a Recv, a Read or an Atomic
	Imm    uint32 // a Recv that a Write with immediate used
	Err    error  // nil on success; otherwise what, where, which peer. After an error the QP is in StateError
}

// Status says how a work request ended. The names are those of InfiniBand verbs.
type Status uint8

const (
	StatusSuccess      Status = iota
	StatusLocalLength         // a message was longer than the posted Recv
	StatusLocalProt           // a local region lacks the right, or is gone
	StatusRemoteAccess        // the peer refused: key, right or bounds
	StatusRemoteOp            // the peer could not carry it out
	StatusRNR                 // the peer had no Recv posted
	StatusFlushed             // the QP went into error, or closed, before this request was carried out
	StatusFatal               // the connection or the peer is lost
)

func (s Status) String() string {
	switch s {
	case StatusSuccess:
		return "success"
	case StatusLocalLength:
		return "local length error"
	case StatusLocalProt:
		return "local protection error"
	case StatusRemoteAccess:
		return "remote access error"
	case StatusRemoteOp:
		return "remote operation error"
	case StatusRNR:
		return "receiver not ready"
	case StatusFlushed:
		return "flushed"
	case StatusFatal:
		return "fatal"
	}
	return "unknown status"
}
