package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/words"
	"github.com/weft-mpi/weft/transport"
)

var _ transport.Placer = (*qp)(nil)

// Place sends a Write past the queue, while nothing else waits to be sent. The peer checks what it names.
func (q *qp) Place(to *transport.Segment, head transport.Head, payload []byte, tail uint64) bool {
	frame := q.compose(to, head, payload, tail)
	if frame == nil {
		return false
	}
	n, err := sys.Write(q.fd, frame)
	if n == len(frame) {
		q.pulse.said = true
	} else {
		q.placedInPart(frame, max(n, 0), err)
	}
	return true
}

// compose makes the frame of a Write in the outbox, where that may go out at once.
func (q *qp) compose(to *transport.Segment, head transport.Head, payload []byte, tail uint64) []byte {
	n := int(min(to.Length, copyMax+1))
	if n > copyMax || n < transport.HeadSize+len(payload)+tailSize || !q.idle() {
		return nil
	}
	frame := q.scq.out.buf[: headerSize+n : headerSize+n]
	words.Put(frame, 0, loneWrite|uint64(n)) // a header, without the detour over its parts
	words.Put(frame, words.Size, uint64(to.Key))
	words.Put(frame, 2*words.Size, to.Offset)
	m := frame[headerSize:]
	words.Put(m, 0, head.A)
	words.Put(m, words.Size, head.B)
	words.Put(m, 2*words.Size, head.C)
	if len(payload) == words.Size { // as many messages are
		words.Put(m, transport.HeadSize, words.Get(payload, 0))
	} else {
		words.Copy(m[transport.HeadSize:], payload)
	}
	clear(m[transport.HeadSize+len(payload) : n-tailSize]) // what others were sent is none of this peer's business
	words.Put(m, n-tailSize, tail)
	return frame
}

// idle tells whether a frame may go out at once, past the queue: there is nothing before it, as there is while the socket has no room, and it needs
// neither sum nor cipher.
func (q *qp) idle() bool {
	return q.state == transport.StateReady && q.sq.head == q.sq.tail && q.at.answer == q.answers.tail && q.at.greeted && !q.quiet &&
		!q.checked && q.lanes == nil && q.secure == nil && q.carry.empty()
}

// placedInPart queues a frame of which the socket has taken n bytes.
func (q *qp) placedInPart(frame []byte, n int, err error) {
	q.sq.room(q.conf.SendWR) // there is: compose has seen the queue empty
	h, _ := parseHeader(frame)
	w := q.sq.at(q.sq.tail)
	*w = wqe{op: transport.OpWrite, flags: transport.FlagInline, total: h.length, local: w.local[:0],
		remote: append(w.remote[:0], transport.Segment{Key: transport.Key(h.a), Offset: h.b, Length: uint64(h.length)}),
		inline: append(w.inline[:0], frame[headerSize:]...)}
	q.sq.tail++
	if err != nil {
		q.lastWords()
		q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
		return
	}
	if n > 0 {
		q.pulse.said = true
		q.at.next++
		q.carry.head = append(q.carry.head[:0], frame[n:]...)
	}
	q.block()
}

// Line is nowhere in this process.
func (q *qp) Line(uint64) uintptr { return 0 }

// Shared tells that Place does not reach the peer's memory.
func (q *qp) Shared() bool { return false }
