package tcp

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// WriteInline sends a Write directly, bypassing the queue, if nothing else waits to be sent. The peer checks
// the key and the bounds.
func (q *qp) WriteInline(to *transport.Segment, head, payload []byte, tail uint64) bool {
	if to.Length > frame.MaxCopied {
		return q.writeLongInline(to, head, payload, tail)
	}
	encoded := q.compose(to, head, payload, tail)
	if encoded == nil {
		return false
	}
	l := q.inline
	n, err := sys.Write(l.fd, encoded)
	if n == len(encoded) {
		l.keepalive.Sent = true
	} else {
		l.inlineInPart(to, encoded, max(n, 0), err)
	}
	return true
}

// compose makes the frame of a Write in the batch, if it may be sent at once.
func (q *qp) compose(to *transport.Segment, head, payload []byte, tail uint64) []byte {
	n := int(to.Length)
	if n < len(head)+len(payload)+tailSize || !q.idle() {
		return nil
	}
	encoded := q.scq.out.Scratch(frame.HeaderSize + n)
	putWriteHeader(encoded, to)
	m := encoded[frame.HeaderSize:]
	wordcopy.Copy(m, head)
	wordcopy.Copy(m[len(head):], payload)
	// do not send bytes of another peer's frame
	clear(m[len(head)+len(payload) : n-tailSize])
	wordcopy.Put(m, n-tailSize, tail)
	return encoded
}

// putWriteHeader puts the header of a Write's only frame directly.
func putWriteHeader(b []byte, to *transport.Segment) {
	wordcopy.Put(b, 0, singleFrameWrite|to.Length)
	wordcopy.Put(b, wordcopy.Size, uint64(to.Key))
	wordcopy.Put(b, 2*wordcopy.Size, to.Offset)
}

// maxLongInline bounds the Writes whose rest is kept in a copy if the socket does not accept all of them.
const maxLongInline = 128 << 10

// writeLongInline is WriteInline for more bytes than are worth a copy: the payload goes out of the caller's
// memory.
func (q *qp) writeLongInline(to *transport.Segment, head, payload []byte, tail uint64) bool {
	if to.Length > maxLongInline {
		return false
	}
	pad := int(to.Length) - len(head) - len(payload) - tailSize
	if pad < 0 || pad > frame.MaxCopied || len(payload) == 0 || !q.idle() {
		return false
	}
	first := frame.HeaderSize + len(head)
	b := q.scq.out.Scratch(first + pad + tailSize)
	putWriteHeader(b, to)
	copy(b[frame.HeaderSize:], head)
	clear(b[first : first+pad])
	wordcopy.Put(b, first+pad, tail)
	l := q.inline
	v := [3]sys.Iovec{sys.Vec(b[:first]), sys.Vec(payload), sys.Vec(b[first:])}
	n, err := sys.Writev(l.fd, v[:])
	if n <= 0 || err != nil {
		return false // a posted Write waits for room, or meets the same error
	}
	l.keepalive.Sent = true
	if to.Length >= directMin {
		q.sentLongLast = true
	}
	if n < frame.HeaderSize+int(to.Length) {
		l.longInPart(to, n, b[:first], payload, b[first:])
	}
	return true
}

// longInPart keeps the rest of a frame, in pieces, of which the socket has accepted n bytes.
func (s *singleLink) longInPart(to *transport.Segment, n int, pieces ...[]byte) {
	s.queueInline(to, nil)
	s.q.at.next++
	s.partial.Reset()
	for _, p := range pieces {
		s.partial.Append(p[min(n, len(p)):])
		n = max(n-len(p), 0)
	}
	s.block()
}

// idle reports whether a frame may be sent directly: nothing waits before it, and it needs no checksum or
// encryption. The socket may nevertheless have no room.
func (q *qp) idle() bool {
	l := q.inline
	return l != nil && q.State() == transport.StateReady && q.SQ.Head == q.SQ.Tail &&
		q.at.response == q.answer.queue.Tail && q.at.greeted && !q.awaitingFirstFrame && l.partial.Empty()
}

// queueInline queues a Write of which this holds the bytes, or none if some of them are sent already.
func (s *singleLink) queueInline(to *transport.Segment, bytes []byte) {
	q := s.q
	q.SQ.Room(q.Attr.SendWR) // there is room: idle found the queue empty
	w := q.SQ.At(q.SQ.Tail)
	*w = verbs.Request{Op: transport.OpWrite, Flags: transport.FlagInline, Total: int(to.Length),
		Local: w.Local[:0], Remote: append(w.Remote[:0], *to), Inline: append(w.Inline[:0], bytes...)}
	q.SQ.Tail++
}

// inlineInPart queues a frame of which the socket has accepted n bytes.
func (s *singleLink) inlineInPart(to *transport.Segment, encoded []byte, n int, err error) {
	q := s.q
	s.queueInline(to, encoded[frame.HeaderSize:])
	if err != nil {
		s.writeFailed(err)
		return
	}
	if n > 0 {
		s.keepalive.Sent = true
		q.at.next++
		s.partial.Keep(encoded[n:])
	}
	s.block()
}

// PrefetchAddr returns 0: the peer's memory is not mapped.
func (q *qp) PrefetchAddr(uint64) uintptr { return 0 }
