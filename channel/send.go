package channel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
)

// SendFlags say how a message is sent.
type SendFlags uint8

const (
	// FlagMore: another message follows at once, and the two may travel together.
	FlagMore SendFlags = 1 << iota
	// FlagBeyondWindow: a stream that has run out of credits may leave the cache window, the first lines of
	// the ring (window.go).
	FlagBeyondWindow
	// flagInlineOnly: TrySend does nothing but an inline write into lines that are known to be free.
	flagInlineOnly
)

// TrySend sends a message whose body is a word, little-endian, and a payload. It never blocks: false with no
// error means that there is no room now, or none in the cache window, or that the payload of an Eager is
// larger than MaxElement, or the body of another kind larger than MaxBody. The payload belongs to the caller
// again when TrySend returns. k is a kind of the layer above. An error comes from the queue pair, which is
// then broken.
func (c *Channel) TrySend(k Kind, word uint64, payload []byte, flags SendFlags) (sent bool, err error) {
	// In the common case the queue pair writes the message from the caller's data directly to its
	// destination, into lines that are known to be free.
	s := &c.send
	n := wordSize + len(payload)
	lines := linesOf(n)
	if n > s.maxInline || flags&FlagMore != 0 && !c.peerMapped {
		return c.trySendSlow(k, word, payload, flags)
	}
	if lines > s.freeAhead {
		if lines > s.freeAfterWrap || s.credited != s.sent {
			return c.trySendSlow(k, word, payload, flags)
		}
		s.startWrap()
	}
	head := s.head[:]
	wordcopy.Put(head, 0, headWord(s.generation, n))
	header := headerWord(c.recv.consumed, k, c.refuses, s.announcedEnd())
	wordcopy.Put(head, wordSize, header|s.asksTakeover(lines))
	wordcopy.Put(head, bodyAt, word)
	if !c.qp.WriteInline(s.nextLines(lines), head, payload, s.generation) {
		return c.trySendSlow(k, word, payload, flags)
	}
	s.creditStalled, s.reserved, s.body = false, 0, n
	c.onPosted(lines)
	c.onCommitted()
	return true, nil
}

// trySendSlow is TrySend if no line is known to be free, or an inline write has failed: it looks for free
// lines, in the cache window first, and falls back to a posted Write.
func (c *Channel) trySendSlow(k Kind, word uint64, payload []byte, flags SendFlags) (bool, error) {
	s := &c.send
	if flags&flagInlineOnly != 0 {
		return false, nil
	}
	if flags&FlagBeyondWindow != 0 {
		s.windowed = false
	}
	n := wordSize + len(payload)
	if k == Eager && len(payload) > c.MaxElement(wordSize) {
		return false, nil
	}
	// If lines were known to be free, the inline write failed for another reason.
	if !k.inner() && c.inlineWrites && !c.paused && n <= s.maxInline && linesOf(n) > s.freeAhead {
		lines, at, wrapStart, windowed := linesOf(n), s.cursor, s.wrapStart, s.windowed
		switch {
		case s.reserveInWindow(lines):
			s.freeAhead = lines
			if sent, _ := c.TrySend(k, word, payload, flags|flagInlineOnly); sent {
				return true, nil
			}
			// Nothing was sent in a wrap that was started.
			s.cursor, s.wrapStart, s.windowed, s.freeAhead = at, wrapStart, windowed, 0
		case s.windowEnd(lines) < s.lines:
			return false, nil
		}
	}
	body := c.reserve(n, dataReserve)
	if body == nil {
		return false, nil
	}
	binary.LittleEndian.PutUint64(body, word)
	wordcopy.Copy(body[wordSize:], payload)
	if err := c.commit(k, flags&FlagMore != 0); err != nil {
		return false, ignoreQueueFull(err)
	}
	return true, nil
}

// TrySendControl sends a control message, which may use lines that data leaves free. If there is room, fill
// writes the body of n bytes, which contains old bytes. If fill fails, TrySendControl returns its error and
// sends nothing. False with no error means that there is no room now; fill may have been called all the same,
// because the send queue may be full.
func (c *Channel) TrySendControl(k Kind, n int, more bool, fill func(body []byte) error) (sent bool,
	err error) {
	body := c.reserve(n, creditLines)
	if body == nil {
		return false, nil
	}
	if err := fill(body); err != nil {
		return false, err
	}
	if err := c.commit(k, more); err != nil {
		return false, ignoreQueueFull(err)
	}
	return true, nil
}

// reserve returns memory for the body of the next message, n bytes long, to be filled and then committed, and
// leaves keep lines free: dataReserve for data, which leaves room for control messages and for CREDIT. It
// returns nil if there are too few credits, if the channel is not open, and for an n below 0 or above
// MaxBody. The body holds old bytes. Only the last reserve counts; one that is not committed costs nothing.
func (c *Channel) reserve(n, keep int) []byte {
	s := &c.send
	s.reserved = 0
	if c.state != StateOpen || c.paused || uint(n) > uint(s.maxBody) {
		return s.large.reserve(c, n, keep)
	}
	need := linesOf(n)
	if !s.reserveLines(need, keep) {
		c.onCreditStall(need)
		return nil
	}
	s.creditStalled = false
	s.reserved, s.body = need, n
	at := s.pos*lineSize + bodyAt
	return s.ring[at : at+n : at+n]
}

// commit sends the message that was reserved last, by one unsignaled Write. If the send queue is full nothing
// is sent, the error wraps transport.ErrQueueFull, and commit can be called again. Any other error comes from
// the queue pair, which is then broken, or says that there is nothing to commit.
func (c *Channel) commit(k Kind, more bool) error {
	s := &c.send
	if s.reserved <= 0 || k.inner() {
		if s.reserved < 0 && !k.inner() {
			return s.large.commit(c, k, more)
		}
		return fmt.Errorf("%w: commit of %v with %d lines reserved", transport.ErrInvalid, k, s.reserved)
	}
	if err := c.post(k, s.body, s.reserved, more); err != nil {
		s.queueFull = s.queueFull || errors.Is(err, transport.ErrQueueFull)
		return err
	}
	c.onCommitted()
	return nil
}

// TakeQueueFull reports whether a message has found the send queue full since the last call. Nothing signals
// when the queue has room again, because the channel's Writes are unsignalled: a caller with such a message
// must try again at the next pass.
func (c *Channel) TakeQueueFull() bool {
	full := c.send.queueFull
	c.send.queueFull = false
	return full
}

// onCommitted counts the message that was reserved.
func (c *Channel) onCommitted() {
	n := c.send.body
	c.send.reserved = 0
	c.demand.largest = max(c.demand.largest, n)
	c.stats.Sent++
	c.stats.SentBytes += uint64(n)
}

// ignoreQueueFull turns a full send queue into no error.
func ignoreQueueFull(err error) error {
	if errors.Is(err, transport.ErrQueueFull) {
		return nil
	}
	return err
}

// post sends a message from the next lines of the ring, which reserveLines has found.
func (c *Channel) post(k Kind, n, lines int, more bool) error {
	s := &c.send
	header := headerWord(c.recv.consumed, k, c.refuses, s.announcedEnd()) | s.asksTakeover(lines)
	if err := s.write(c.qp, header, n, lines, more); err != nil {
		return err
	}
	c.onPosted(lines)
	return nil
}

// onPosted notes that a message of so many lines was sent, and all credit with it.
func (c *Channel) onPosted(lines int) {
	s := &c.send
	c.recv.advertised, c.recv.largeUnadvertised, c.recv.creditDue = c.recv.consumed, 0, false
	s.sent += uint32(lines)
	s.pos += lines
	if s.freeAhead, s.freeAfterWrap = 0, 0; c.paused || !c.inlineWrites {
		return
	}
	if s.pos < pingPongLines || int(s.sent-s.credited) != lines { // otherwise another wrap is likely to begin
		s.freeAhead = s.freeRun(lines)
	}
	// with a large ring, reserveLines must be called from time to time
	if s.pos >= pingPongLines && s.large == nil {
		s.freeAfterWrap = s.lines - dataReserve
	}
}

// AllConsumed reports whether the peer has consumed all that was sent to it but CREDITs, and has said so. It
// is a hint, and false before the first message.
func (c *Channel) AllConsumed() bool {
	s := &c.send
	end := s.sent
	if s.creditsEnd == end {
		end = s.creditsFrom
	}
	return int32(s.credited-end) >= 0 && s.sent > 0
}
