package eager

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/channel"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// Batch gathers small messages of one burst that will share a slot: one Write, one head and one tail for all
// of them. Consecutive messages with the same envelope and length share these too; they form a run. The zero
// Batch is empty; SetMemory gives it memory.
type Batch struct {
	buf     []byte
	lastRun int // where the last run begins
	count   int // of messages
	// a copy of the last run's header, envelope and length. Continue may use them only while count is above
	// 0; LastRun also after
	word   uint64
	length int
}

const (
	runLen = 4 + EnvelopeLen // length of each payload, count, envelope
	// A run has at most maxRun messages, or one if they are empty, so that a few bytes never stand for many
	// messages.
	maxRun = 1 << 16
	// BatchSize is the capacity of a batch, in bytes.
	BatchSize = 4 << 10
	// MaxBatched is the largest payload that is worth batching: a larger one hardly gains by sharing a slot.
	MaxBatched = 256
	// MaxBatchedMapped is MaxBatched to a peer whose ring is mapped: three such messages share a slot. Each
	// message in a slot of its own takes the lines that the peer polls away from it, which between distant
	// cores takes longer than copying a few KiB.
	MaxBatchedMapped = (BatchSize - runLen) / 3
)

// SetMemory makes the batch gather in memory of BatchSize bytes.
func (b *Batch) SetMemory(memory []byte) { b.buf = memory[:0] }

// TakeMemory takes the memory from an empty batch, and returns it; nil if it has none.
func (b *Batch) TakeMemory() []byte {
	m := b.buf
	b.buf = nil
	return m
}

// Room returns how many bytes the batch's memory has left.
func (b *Batch) Room() int { return cap(b.buf) - len(b.buf) }

// Count returns the number of messages in the batch.
func (b *Batch) Count() int { return b.count }

// Len returns the length of the batch in bytes.
func (b *Batch) Len() int { return len(b.buf) }

// LastRun returns the envelope and the length of the messages of the last run, which may have been sent
// since.
func (b *Batch) LastRun() (env Envelope, length int) { return envelopeOf(b.word), b.length }

// Continue copies a message into the batch if it can be the next of the last run, as is common in a burst. If
// it returns false, nothing was done, and Add may begin another run.
func (b *Batch) Continue(c *channel.Channel, env Envelope, payload []byte) bool {
	if b.count == 0 || env.word() != b.word || len(payload) != b.length || len(payload) == 0 {
		return false
	}
	at := len(b.buf)
	n := at + len(payload)
	if n > cap(b.buf) || n > c.MaxBody() {
		return false
	}
	run := b.buf[b.lastRun:]
	count := binary.LittleEndian.Uint16(run[2:])
	if count == maxRun-1 {
		return false
	}
	b.buf = b.buf[:n]
	binary.LittleEndian.PutUint16(run[2:], count+1)
	if len(payload) == wordcopy.Size { // the common case
		wordcopy.Put(b.buf, at, wordcopy.Get(payload, 0))
	} else {
		wordcopy.Copy(b.buf[at:], payload)
	}
	b.count++
	return true
}

// Add copies a message into the batch. False means that the batch is full, that the message is longer than
// MaxPayload, or that it would not fit a slot of the first phase and the channel may be about to have these.
// While a batch has such a message, its channel must not be told to shrink (Channel.ShrinkIfIdle).
func (b *Batch) Add(c *channel.Channel, env Envelope, payload []byte) bool {
	if b.Continue(c, env, payload) {
		return true
	}
	if len(payload) > MaxPayload(c) {
		return false
	}
	at := len(b.buf)
	n := at + runLen + len(payload)
	if n > cap(b.buf) || n > c.MaxBody() ||
		runLen+len(payload) > c.FirstPhaseBody() && c.Due() == channel.DueResize {
		if n <= cap(b.buf) && b.count > 0 {
			c.BatchOverflowed()
		}
		return false
	}
	b.buf = b.buf[:n]
	b.lastRun, b.word, b.length = at, env.word(), len(payload)
	putRun(b.buf[at:], len(payload), 1, env)
	wordcopy.Copy(b.buf[at+runLen:], payload)
	b.count++
	return true
}

// TrySend sends the batch and empties it. False means that there is no room now for all of it; the messages
// that were sent are no longer in it.
func (b *Batch) TrySend(c *channel.Channel, flags channel.SendFlags) (bool, error) {
	for b.count > 0 {
		n, count, cut := b.prefix(c.MaxBody())
		var r run
		gone := 0
		if cut >= 0 { // only a part of this run is sent
			r.parse(b.buf[cut:])
			gone = (n - cut - runLen) / r.length
			putRun(b.buf[cut:], r.length, gone, r.env)
		}
		how := flags
		if count < b.count {
			how |= channel.FlagMore
		}
		sent, err := c.TrySend(channel.Batch, binary.LittleEndian.Uint64(b.buf), b.buf[wordcopy.Size:n], how)
		if !sent {
			if cut >= 0 {
				putRun(b.buf[cut:], r.length, r.count, r.env)
			}
			return false, err
		}
		if cut >= 0 { // write a header for the rest of the run over the bytes that were sent
			n -= runLen
			putRun(b.buf[n:], r.length, r.count-gone, r.env)
		}
		b.buf, b.count, b.lastRun = b.buf[:copy(b.buf, b.buf[n:])], b.count-count, max(b.lastRun-n, 0)
	}
	return true, nil
}

// prefix returns how many bytes and messages at the beginning fit a body of room bytes, and the offset of the
// run that is cut, or -1.
func (b *Batch) prefix(room int) (n, count, cut int) {
	if len(b.buf) <= room {
		return len(b.buf), b.count, -1
	}
	for {
		var r run
		r.parse(b.buf[n:])
		if next := n + runLen + r.length*r.count; next <= room {
			n, count = next, count+r.count
		} else if fit := (room - n - runLen) / max(r.length, 1); fit > 0 {
			return n + runLen + r.length*fit, count + fit, n
		} else {
			return n, count, -1
		}
	}
}

// Reset empties the batch.
func (b *Batch) Reset() { b.buf, b.lastRun, b.count = b.buf[:0], 0, 0 }

// run is the header of a run.
type run struct {
	length, count int
	env           Envelope
}

func (r *run) parse(b []byte) {
	w := binary.LittleEndian.Uint64(b[4:])
	r.length, r.count = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))+1
	r.env = envelopeOf(w)
}

func putRun(b []byte, length, count int, env Envelope) {
	binary.LittleEndian.PutUint32(b, uint32(length)|uint32(count-1)<<16)
	env.put(b[4:])
}

// Run is a series of messages with one envelope and one length.
type Run struct {
	Envelope
	Length   int    // of each
	Count    int    // of messages
	Payloads []byte // one after the other, in the body's own memory
}

// ParseRun parses the next run of the body of a BATCH.
func ParseRun(body []byte, into *Run) (rest []byte, err error) {
	if len(body) < runLen {
		return nil, fmt.Errorf("%w: %d bytes at the end of a batch", transport.ErrProtocol, len(body))
	}
	var r run
	r.parse(body)
	body = body[runLen:]
	n := r.length * r.count
	switch {
	case r.env.Tag < 0:
		return nil, fmt.Errorf("%w: a message with tag %d in a batch", transport.ErrProtocol, r.env.Tag)
	case r.count > 1 && r.length == 0:
		return nil, fmt.Errorf("%w: %d messages of no bytes as one run of a batch", transport.ErrProtocol,
			r.count)
	case n > len(body):
		return nil, fmt.Errorf("%w: %d messages of %d bytes in a batch with %d left", transport.ErrProtocol,
			r.count, r.length, len(body))
	}
	into.Envelope, into.Length, into.Count, into.Payloads = r.env, r.length, r.count, body[:n:n]
	return body[n:], nil
}
