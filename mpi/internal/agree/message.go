package agree

import (
	"encoding/binary"
	"fmt"
)

// Kind is the kind of a message.
type Kind uint8

const (
	Up      Kind = iota + 1 // promises the ballot, and carries the contributions of the sender's subtree
	Propose                 // carries the root's value
	Ack                     // says that the sender's subtree has accepted the value of the ballot
	Commit                  // carries the decided value
	// tells a member that its ballot is over, or may be: all members below the message's ballot have failed
	Newer
)

var kindNames = [...]string{"", "UP", "PROPOSE", "ACK", "COMMIT", "NEWER"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Message is a message between two members about one agreement.
type Message struct {
	Instance uint32 // the number of the agreement in its communicator, from 0
	Kind     Kind
	Ballot   uint32 // the index of the root
	Value    Value  // of Up, Propose and Commit
	// of Up: a member below has accepted Value in ballot Accepted, and so the contributions do not matter
	HasAccepted bool
	Accepted    uint32
	History     uint64 // of the sender, before this agreement; 0 if it has none
}

const (
	headerLen = 4 + 1 + 1 + 4 + 4 + 8
	valueLen  = 8 + 8 + SetSize/8
	// MaxLen is the length of the longest message.
	MaxLen = headerLen + valueLen
)

// hasValue reports whether messages of a kind carry a value.
func (k Kind) hasValue() bool { return k == Up || k == Propose || k == Commit }

// Append appends the encoded message to b.
func (m *Message) Append(b []byte) []byte {
	flag := byte(0)
	if m.HasAccepted {
		flag = 1
	}
	b = binary.LittleEndian.AppendUint32(b, m.Instance)
	b = append(b, byte(m.Kind), flag)
	b = binary.LittleEndian.AppendUint32(b, m.Ballot)
	b = binary.LittleEndian.AppendUint32(b, m.Accepted)
	b = binary.LittleEndian.AppendUint64(b, m.History)
	if m.Kind.hasValue() {
		b = m.Value.append(b)
	}
	return b
}

// Parse decodes a message that Append has encoded.
func Parse(b []byte) (Message, error) {
	if len(b) < headerLen {
		return Message{}, fmt.Errorf("a message of an agreement has %d bytes, at least %d belong", len(b),
			headerLen)
	}
	m := Message{Instance: binary.LittleEndian.Uint32(b), Kind: Kind(b[4]), HasAccepted: b[5] == 1,
		Ballot: binary.LittleEndian.Uint32(b[6:]), Accepted: binary.LittleEndian.Uint32(b[10:]),
		History: binary.LittleEndian.Uint64(b[14:])}
	if m.Kind < Up || m.Kind > Newer || b[5] > 1 || m.HasAccepted && m.Kind != Up ||
		!m.HasAccepted && m.Accepted != 0 {
		return Message{}, fmt.Errorf("a message of an agreement of %v with flag %d", m.Kind, b[5])
	}
	want := headerLen
	if m.Kind.hasValue() {
		want += valueLen
	}
	if len(b) != want {
		return Message{}, fmt.Errorf("%v of an agreement has %d bytes, not %d", m.Kind, len(b), want)
	}
	if m.Kind.hasValue() {
		m.Value.parse(b[headerLen:])
	}
	return m, nil
}

func (v *Value) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, v.And)
	b = binary.LittleEndian.AppendUint64(b, v.Max)
	for _, w := range v.Set {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func (v *Value) parse(b []byte) {
	v.And, v.Max = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	for i := range v.Set {
		v.Set[i] = binary.LittleEndian.Uint64(b[16+8*i:])
	}
}
