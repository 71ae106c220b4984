// Package eager is the protocol for messages that are copied through the ring of a channel: envelope and
// payload are sent in the call, and the sender is done. The receiver copies the payload out of its ring once.
//
// A message that fits one slot is sent as one EAGER. A longer vector is sent in fragments: FIRST with its
// envelope and its length, then MORE. Fragments of two messages on one channel do not interleave, so they
// need no number; the message is matched once, by its FIRST. Labels such as E3 in comments are requirement
// ids, see docs/internals/conformance.md.
package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Envelope is matched with a receive, together with the message's source, which is the channel.
type Envelope struct {
	Context uint32 // of the communicator
	Tag     int32  // 0 or more
}

// EnvelopeLen is the length of an Envelope in an EAGER, in bytes.
const EnvelopeLen = 8

const (
	firstLen   = EnvelopeLen + 8
	maxMessage = 1 << 46 // no message is longer; a length beyond it is nonsense
)

// MaxPayload returns the largest payload that fits a slot of the channel in its current phase; negative
// before the channel is open.
func MaxPayload(c *channel.Channel) int { return c.MaxElement(EnvelopeLen) }

// TrySend sends a payload. If it returns true, the payload has been copied. False means that there is no room
// now, or that the payload is longer than MaxPayload. TrySend never blocks.
func TrySend(c *channel.Channel, env Envelope, payload []byte, flags channel.SendFlags) (bool, error) {
	return c.TrySend(channel.Eager, env.word(), payload, flags)
}

// Append appends the body of an EAGER to b.
func Append(b []byte, env Envelope, payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, env.word()), payload...)
}

// Expect predicts that the payload of the next message has n bytes.
func Expect(c *channel.Channel, n int) { c.Expect(EnvelopeLen + n) }

// PrefetchAddr returns the address to which an answer with a payload of n bytes would be written, for a
// prefetch; 0 if a prefetch does not pay.
func PrefetchAddr(c *channel.Channel, n int) uintptr { return c.PrefetchAddr(EnvelopeLen + n) }

// TryRecv receives the next message of the channel if it is an EAGER with this envelope, whose tag must not
// be a wildcard, and its payload fits in buf. n is the payload's length. Otherwise TryRecv does nothing.
func TryRecv(c *channel.Channel, env Envelope, buf []byte) (n int, ok bool) {
	return c.TryRecv(channel.Eager, env.word(), buf)
}

func (e Envelope) put(b []byte) {
	binary.LittleEndian.PutUint64(b, e.word())
}

func (e Envelope) word() uint64 { return uint64(e.Context) | uint64(uint32(e.Tag))<<32 }

func envelopeOf(word uint64) Envelope { return Envelope{Context: uint32(word), Tag: int32(word >> 32)} }

func parseEnvelope(b []byte) (Envelope, error) {
	e := envelopeOf(binary.LittleEndian.Uint64(b))
	if e.Tag < 0 {
		return Envelope{}, fmt.Errorf("%w: an eager message with tag %d", transport.ErrProtocol, e.Tag)
	}
	return e, nil
}

// Parse parses an EAGER. The payload is the body's own memory.
func Parse(body []byte) (Envelope, []byte, error) {
	if len(body) >= EnvelopeLen {
		if env := envelopeOf(binary.LittleEndian.Uint64(body)); env.Tag >= 0 {
			return env, body[EnvelopeLen:], nil
		}
	}
	return Envelope{}, nil, parseError(body)
}

// parseError returns the error of an invalid EAGER. It is a separate function so that Parse is inlined.
func parseError(body []byte) error {
	if len(body) < EnvelopeLen {
		return fmt.Errorf("%w: an eager message of %d bytes has no envelope", transport.ErrProtocol,
			len(body))
	}
	_, err := parseEnvelope(body)
	return err
}
