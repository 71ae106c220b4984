package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/transport"
)

// Batch gathers small messages of one burst that are to share a slot: one Write, one head and one tail for all of them. The zero Batch is
// empty; Use gives it memory.
type Batch struct {
	buf   []byte
	count int
}

const (
	entryLen = 4 + envelopeLen // length of the payload, envelope
	// BatchSize is the most that a batch takes, in bytes.
	BatchSize = 4 << 10
	// BatchedMost is the largest payload that is worth it: what is larger hardly gains by sharing a slot.
	BatchedMost = 256
)

// Use has the batch gather in memory of BatchSize bytes.
func (b *Batch) Use(memory []byte) { b.buf = memory[:0] }

// Memory takes the memory away from an empty batch; nil if it has none.
func (b *Batch) Memory() []byte {
	m := b.buf
	b.buf = nil
	return m
}

// Count is the number of messages in the batch.
func (b *Batch) Count() int { return b.count }

// Add copies a message into the batch. False means that it is full, or that the message would not fit a slot of every phase: the channel may go
// back to small slots before the batch is sent.
func (b *Batch) Add(c *channel.Channel, env Envelope, payload []byte) bool {
	at := len(b.buf)
	n := at + entryLen + len(payload)
	if n > cap(b.buf) || n > c.MaxBody() || entryLen+len(payload) > c.LeastBody() {
		if n <= cap(b.buf) && b.count > 0 {
			c.Crowded()
		}
		return false
	}
	b.buf = b.buf[:n]
	e := b.buf[at:]
	binary.LittleEndian.PutUint32(e, uint32(len(payload)))
	env.put(e[4:])
	copy(e[entryLen:], payload)
	b.count++
	return true
}

// Send sends the batch and empties it. False means that there is no room now for all of it; what has gone is not in it any more.
func (b *Batch) Send(c *channel.Channel, more bool) (bool, error) {
	for b.count > 0 {
		n, count := b.leading(c.MaxBody())
		sent, err := c.Put(channel.Batch, binary.LittleEndian.Uint64(b.buf), b.buf[8:n], more || count < b.count)
		if !sent {
			return false, err
		}
		b.buf, b.count = b.buf[:copy(b.buf, b.buf[n:])], b.count-count
	}
	return true, nil
}

// leading tells how many of the first messages go into a body of so many bytes, and how many bytes they are.
func (b *Batch) leading(most int) (n, count int) {
	if len(b.buf) <= most {
		return len(b.buf), b.count
	}
	for {
		next := n + entryLen + int(binary.LittleEndian.Uint32(b.buf[n:]))
		if next > most {
			return n, count
		}
		n, count = next, count+1
	}
}

// Drop empties the batch.
func (b *Batch) Drop() { b.buf, b.count = b.buf[:0], 0 }

// ParseEntry takes the next message off the body of a BATCH. The payload is the body's own memory.
func ParseEntry(body []byte) (env Envelope, payload, rest []byte, err error) {
	if len(body) < entryLen {
		return Envelope{}, nil, nil, fmt.Errorf("%w: %d bytes at the end of a batch", transport.ErrProtocol, len(body))
	}
	n := uint64(binary.LittleEndian.Uint32(body))
	env, err = parseEnvelope(body[4:])
	if body = body[entryLen:]; err == nil && n > uint64(len(body)) {
		err = fmt.Errorf("%w: a message of %d bytes in a batch with %d left", transport.ErrProtocol, n, len(body))
	}
	if err != nil {
		return Envelope{}, nil, nil, err
	}
	return env, body[:n:n], body[n:], nil
}
