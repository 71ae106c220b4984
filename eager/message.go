package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Message is a message being sent from a vector of elements. The elements belong to the caller, and must not
// change until the whole message has been sent. The zero Message is ready for Start.
type Message struct {
	Envelope
	channel.Vector
	total   int
	started bool // its FIRST was sent
}

// Start makes m a message with these elements.
func (m *Message) Start(env Envelope, elems [][]byte) {
	*m = Message{Envelope: env, Vector: channel.Vector{Elems: elems}}
	for _, e := range elems {
		m.total += len(e)
	}
}

// StartGathered makes m a message of n bytes whose elements are not known yet.
func (m *Message) StartGathered(env Envelope, n int) { *m = Message{Envelope: env, total: n} }

// Total returns the length of the message in bytes.
func (m *Message) Total() int { return m.total }

// Started reports whether a part of the message has been sent.
func (m *Message) Started() bool { return m.started }

// MarkStarted notes that the message has begun by other means than TrySend: an RTS has announced all of it,
// or First.TrySend was used.
func (m *Message) MarkStarted() { m.started = true }

// TrySend sends as much of the message as there is room for, and returns how many bytes went. With the
// outcome Waiting, it waits for credit, the send queue, or larger slots (E3 to E5 in
// docs/internals/conformance.md). A message that needed only one slot has been sent completely or not at all.
// Oversized means that the front element will never fit a slot: it must be announced instead (package
// rendezvous).
func (m *Message) TrySend(c *channel.Channel, flags channel.SendFlags) (n int, o channel.Outcome, err error) {
	var b [firstLen]byte
	if !m.started {
		m.putFirst(b[:])
		n, o, err := m.Vector.TrySendWhole(c, channel.Eager, b[:EnvelopeLen], flags)
		m.started = o == channel.Done
		if o != channel.Oversized || len(m.Elems) == 1 {
			return n, o, err
		}
	}
	for {
		kind, head := channel.More, []byte(nil)
		if !m.started {
			kind, head = channel.First, b[:]
		}
		k, o, err := m.Vector.TrySend(c, kind, head, flags)
		n += k
		m.started = m.started || o == channel.Done || o == channel.Moved
		if o != channel.Moved || err != nil {
			return n, o, err
		}
	}
}

// TrySendHeader sends the beginning of the message without payload, for a message whose first element is
// announced. False means that there is no room now.
func (m *Message) TrySendHeader(c *channel.Channel) (bool, error) {
	opened, err := c.TrySendControl(channel.First, firstLen, true, func(body []byte) error {
		m.putFirst(body)
		return nil
	})
	if m.started = opened; opened && !m.Done() && len(m.Front()) == 0 {
		m.Skip() // an empty element is not sent
	}
	return opened, err
}

func (m *Message) putFirst(b []byte) {
	m.put(b)
	binary.LittleEndian.PutUint64(b[EnvelopeLen:], uint64(m.total))
}

// ParseFirst parses a FIRST: the message's envelope, its length, and the beginning of its payload, which is
// the body's own memory. The payload of a MORE is its body.
func ParseFirst(body []byte) (env Envelope, total int, payload []byte, err error) {
	if len(body) < firstLen {
		return Envelope{}, 0, nil, fmt.Errorf("%w: the beginning of a message, of %d bytes",
			transport.ErrProtocol, len(body))
	}
	if env, err = parseEnvelope(body); err != nil {
		return Envelope{}, 0, nil, err
	}
	n, payload := binary.LittleEndian.Uint64(body[EnvelopeLen:]), body[firstLen:]
	if n > maxMessage || uint64(len(payload)) > n {
		return Envelope{}, 0, nil, fmt.Errorf("%w: a message of %d bytes that begins with %d",
			transport.ErrProtocol, n, len(payload))
	}
	return env, int(n), payload, nil
}
