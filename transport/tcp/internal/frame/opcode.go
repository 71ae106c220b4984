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
	Invalidate
	Lost // over lanes only
	end
)

// Ops is the end of the opcodes that a connection has which is alone.
const Ops = Lost

// opcodes is what the header of each kind of frame may say. A frame's meaning, and that of the words a and
// b of its header, is in docs/internals/spec/wire.md.
var opcodes = [end]struct {
	name       string
	maxPayload int
	unnumbered bool // over lanes: it stands outside the sequence
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
	Atomic:      {name: "Atomic", maxPayload: AtomicSize},
	AtomicDone:  {name: "AtomicDone"},
	Invalidate:  {name: "Invalidate"},
	Lost:        {name: "Lost", maxPayload: MaxLost, unnumbered: true},
}

func (o Op) String() string {
	if o != 0 && o < end {
		return opcodes[o].name
	}
	return fmt.Sprintf("frame type %d", uint8(o))
}

// counts reports whether frames of a kind have a number over lanes.
func (o Op) counts() bool { return !opcodes[o].unnumbered }
