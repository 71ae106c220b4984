package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

var _ transport.Placer = (*qp)(nil)

// Place gives room behind a header in the outbox, while nothing else waits to be sent. The peer checks what the Write names.
func (q *qp) Place(key transport.Key, offset uint64, n int) []byte {
	if n < tailSize || n > copyMax || !q.idle() {
		return nil
	}
	o := &q.scq.out
	header{length: n, op: opWrite, flags: flagLast, a: uint64(key), b: offset}.put(o.buf[:headerSize])
	q.placing = headerSize + n
	m := o.buf[headerSize : headerSize+n : headerSize+n]
	clear(m) // what others were sent is none of this peer's business
	return m
}

// idle tells whether a frame may go out at once, past the queue: there is nothing before it, as there is while the socket has no room, and it needs
// neither sum nor cipher.
func (q *qp) idle() bool {
	return q.state == transport.StateReady && q.sq.head == q.sq.tail && q.at.answer == q.answers.tail && q.at.greeted && !q.quiet &&
		!q.checked && q.lanes == nil && q.secure == nil && q.carry.empty()
}

// Placed sends the Write that Place has begun. What the socket does not take is queued, as if it had been posted.
func (q *qp) Placed(last [tailSize]byte) {
	frame := q.scq.out.buf[:q.placing]
	copy(frame[len(frame)-tailSize:], last[:])
	n, err := sys.Write(q.fd, frame)
	if n == len(frame) {
		q.pulse.said = true
		return
	}
	q.placedInPart(frame, max(n, 0), err)
}

// placedInPart queues a frame of which the socket has taken n bytes.
func (q *qp) placedInPart(frame []byte, n int, err error) {
	q.sq.room(q.conf.SendWR) // there is: Place has seen the queue empty
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

// Shared tells that Place does not give the peer's memory.
func (q *qp) Shared() bool { return false }
