package frame

import "fmt"

// Op is a frame's opcode.
type Op uint8

const (
	Ready Op = iota + 1
	Write
	Send
	Immediate
	ReadRequest
	ReadWrite
	Close
	Terminate
	Alive
	Atomic
	AtomicDone
	Lost // over lanes only
	end
)

// Ops is one more than the largest opcode that a singleLink accepts.
const Ops = Lost

// opcodes has the limits of each opcode. docs/internals/spec/wire.md specifies the meaning of a frame, and of
// the words a and b of its header.
var opcodes = [end]struct {
	name       string
	maxPayload int
	unnumbered bool // over lanes: not part of the sequence
}{
	Ready:       {name: "Ready", unnumbered: true},
	Write:       {name: "Write", maxPayload: MaxPayload},
	Send:        {name: "Send", maxPayload: MaxPayload},
	Immediate:   {name: "Immediate"},
	ReadRequest: {name: "ReadRequest", maxPayload: MaxControl},
	ReadWrite:   {name: "ReadWrite", maxPayload: MaxPayload},
	Close:       {name: "Close"},
	Terminate:   {name: "Terminate", maxPayload: MaxControl},
	Alive:       {name: "Alive", unnumbered: true},
	Atomic:      {name: "Atomic", maxPayload: SegmentSize},
	AtomicDone:  {name: "AtomicDone"},
	Lost:        {name: "Lost", maxPayload: MaxLost, unnumbered: true},
}

func (o Op) String() string {
	if o != 0 && o < end {
		return opcodes[o].name
	}
	return fmt.Sprintf("frame type %d", uint8(o))
}

// sequenced reports whether frames with this opcode have a sequence number over lanes.
func (o Op) sequenced() bool { return !opcodes[o].unnumbered }
