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
	encoded := q.compose(to, head, payload, tail)
	if encoded == nil {
		return false
	}
	l := q.inline
	n, err := sys.Write(l.fd, encoded)
	if n == len(encoded) {
		l.keepalive.Sent = true
	} else {
		l.inlineInPart(encoded, max(n, 0), err)
	}
	return true
}

// compose makes the frame of a Write in the batch, if it may be sent at once.
func (q *qp) compose(to *transport.Segment, head, payload []byte, tail uint64) []byte {
	n := int(min(to.Length, frame.MaxCopied+1))
	if n > frame.MaxCopied || n < len(head)+len(payload)+tailSize || !q.idle() {
		return nil
	}
	encoded := q.scq.out.Scratch(frame.HeaderSize + n)
	wordcopy.Put(encoded, 0, singleFrameWrite|uint64(n)) // the header, written directly
	wordcopy.Put(encoded, wordcopy.Size, uint64(to.Key))
	wordcopy.Put(encoded, 2*wordcopy.Size, to.Offset)
	m := encoded[frame.HeaderSize:]
	wordcopy.Copy(m, head)
	wordcopy.Copy(m[len(head):], payload)
	// do not send bytes of another peer's frame
	clear(m[len(head)+len(payload) : n-tailSize])
	wordcopy.Put(m, n-tailSize, tail)
	return encoded
}

// idle reports whether a frame may be sent directly: nothing waits before it, and it needs no checksum or
// encryption. The socket may nevertheless have no room.
func (q *qp) idle() bool {
	l := q.inline
	return l != nil && q.State() == transport.StateReady && q.SQ.Head == q.SQ.Tail &&
		q.at.response == q.answer.queue.Tail && q.at.greeted && !q.awaitingFirstFrame && l.partial.Empty()
}

// inlineInPart queues a frame of which the socket has accepted n bytes.
func (s *singleLink) inlineInPart(encoded []byte, n int, err error) {
	q := s.q
	q.SQ.Room(q.Attr.SendWR) // there is room: compose found the queue empty
	h, _ := frame.Parse(encoded)
	w := q.SQ.At(q.SQ.Tail)
	*w = verbs.Request{Op: transport.OpWrite, Flags: transport.FlagInline, Total: h.Length,
		Local: w.Local[:0],
		Remote: append(w.Remote[:0], transport.Segment{Key: transport.Key(h.A), Offset: h.B,
			Length: uint64(h.Length)}),
		Inline: append(w.Inline[:0], encoded[frame.HeaderSize:]...)}
	q.SQ.Tail++
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
