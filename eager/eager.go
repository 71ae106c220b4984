// Package eager is the protocol of small messages: envelope and payload are copied into the next slot of the channel, and the
// sender is done. The receiver copies the payload out of its ring once.
package eager

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Envelope is what a message is matched by, beside its source, which is the channel.
type Envelope struct {
	Context uint32 // of the communicator
	Tag     int32  // 0 or more
}

const envelopeLen = 8

// Max is the largest payload that a slot of the channel takes; negative before the channel is open.
func Max(c *channel.Channel) int { return c.MaxBody() - envelopeLen }

// Send sends a payload of at most Max bytes. When it returns true the payload has been copied; false means that there is no room now.
// With more, another message follows at once and the two may travel together.
func Send(c *channel.Channel, env Envelope, payload []byte, more bool) (sent bool, err error) {
	body := c.Reserve(envelopeLen + len(payload))
	if body == nil {
		return false, nil
	}
	env.put(body)
	copy(body[envelopeLen:], payload)
	return committed(c.Commit(channel.Eager, more))
}

// SendVec is Send of a payload that lies in several pieces.
func SendVec(c *channel.Channel, env Envelope, vec [][]byte, more bool) (sent bool, err error) {
	n := 0
	for _, v := range vec {
		n += len(v)
	}
	body := c.Reserve(envelopeLen + n)
	if body == nil {
		return false, nil
	}
	env.put(body)
	at := envelopeLen
	for _, v := range vec {
		at += copy(body[at:], v)
	}
	return committed(c.Commit(channel.Eager, more))
}

// committed turns a full send queue into "no room now".
func committed(err error) (bool, error) {
	if errors.Is(err, transport.ErrQueueFull) {
		return false, nil
	}
	return err == nil, err
}

func (e Envelope) put(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(e.Context)|uint64(uint32(e.Tag))<<32)
}

// Parse takes an eager message apart. The payload is the body's own memory.
func Parse(body []byte) (Envelope, []byte, error) {
	if len(body) < envelopeLen {
		return Envelope{}, nil, fmt.Errorf("%w: an eager message of %d bytes has no envelope", transport.ErrProtocol, len(body))
	}
	w := binary.LittleEndian.Uint64(body)
	env := Envelope{Context: uint32(w), Tag: int32(w >> 32)}
	if env.Tag < 0 {
		return Envelope{}, nil, fmt.Errorf("%w: an eager message with tag %d", transport.ErrProtocol, env.Tag)
	}
	return env, body[envelopeLen:], nil
}
