package tcp

import (
	"fmt"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

const (
	copyMax   = 2 << 10  // payloads up to here are copied behind their header; larger ones are gathered from where they lie
	outSize   = 64 << 10 // headers and copied payloads of one write
	writeMost = 2 << 20  // bytes of one write: a large message goes fastest whole, the kernel of the other side having no part in its sending then
	writeVecs = 64       // pieces of one write

	// checkedAnswer is the most of an answer to a Read that goes into a frame with a checksum: it is copied, since the memory that a peer
	// reads may change at any time, and the checksum has to be that of the bytes that go out.
	checkedAnswer = 16 << 10
)

// cursor is a place in the sequence of frames that a QP has to send. Frames are made from a cursor, moving it; if the socket does
// not take them, going back to the cursor of before undoes it.
type cursor struct {
	greeted bool   // the Ready frame is behind
	ended   bool   // the Close frame is behind
	next    uint32 // send request
	off     int    // bytes of it that are behind
	reads   uint64 // Reads and Atomics of ours that are behind
	answer  uint32 // Read of the peer
	aoff    int    // bytes of its answer that are behind
	turn    bool   // an answer goes before a request, for fairness
}

// carry is the rest of a frame of which the socket has taken a part.
type carry struct {
	head []byte // header and copied payload
	tail []byte // the CRC behind a gathered payload
	n    int    // of vec
	vec  [maxSGE]sys.Iovec
}

func (c *carry) empty() bool { return len(c.head) == 0 && c.n == 0 && len(c.tail) == 0 }

func (c *carry) reset() { c.head, c.n, c.tail = c.head[:0], 0, c.tail[:0] }

// outbox gathers the frames of one write. A completion queue has one, for the queue pairs that send through it: it is empty
// between writes.
type outbox struct {
	buf   [outSize]byte
	used  int
	from  int // of buf, not yet in vec
	vec   [writeVecs]sys.Iovec
	n     int
	bytes int
	marks [writeVecs * 8]mark
	m     int

	header int // bytes of a header, with its CRC if the queue pair has them, and what lanes add
	begun  int // the present frame: where in buf it begins
	pieces int // and the length of vec before it
}

// mark is the end of a frame in an outbox.
type mark struct {
	end    int    // bytes from the beginning
	behind cursor // after it
}

func (o *outbox) reset(checked bool) {
	o.used, o.from, o.n, o.bytes, o.m = 0, 0, 0, 0, 0
	o.header = headerSizeWith(checked)
}

// full tells whether the next frame might not fit.
func (o *outbox) full() bool {
	return o.bytes >= writeMost || o.used > outSize-laneHeaderSize-2*sumSize-copyMax || o.n > writeVecs-maxSGE-3 || o.m == len(o.marks)
}

// begin puts a frame's header into the buffer, and gives room behind it for n bytes of payload.
func (o *outbox) begin(h header, n int) []byte {
	o.begun, o.pieces = o.used, o.n
	b := o.room(o.header + n)
	h.put(b)
	return b[o.header:]
}

// room gives n bytes of the buffer to be filled.
func (o *outbox) room(n int) []byte {
	b := o.buf[o.used : o.used+n]
	o.used += n
	o.bytes += n
	return b
}

// seal puts what has been filled of the buffer into the list.
func (o *outbox) seal() {
	if o.from < o.used {
		o.vec[o.n] = sys.Vec(o.buf[o.from:o.used])
		o.n++
		o.from = o.used
	}
}

// direct adds memory from where it lies.
func (o *outbox) direct(b []byte) {
	o.seal()
	o.vec[o.n] = sys.Vec(b)
	o.n++
	o.bytes += len(b)
}

// hasOutput tells whether there is something that could be sent.
func (q *qp) hasOutput() bool {
	if q.lanes != nil {
		return q.lanes.hasOutput()
	}
	if !q.carry.empty() || q.secure != nil && q.secure.pending() {
		return true
	}
	if q.quiet {
		return q.at.next != q.sq.tail && q.sq.at(q.at.next).here()
	}
	return !q.at.greeted || q.at.next != q.sq.tail || q.at.answer != q.answers.tail || q.closing == closeDue && !q.at.ended
}

// transmit writes frames until there are none, or the socket has no room.
func (q *qp) transmit() {
	if q.lanes != nil {
		q.lanes.transmit()
		return
	}
	if q.secure != nil {
		q.transmitSecure()
		return
	}
	o := &q.scq.out
	for q.fd >= 0 {
		o.reset(q.checked)
		if q.carry.n > 0 && !q.carryAlive() {
			return
		}
		q.carry.gather(o)
		carried := o.bytes
		before := q.at
		for !o.full() && q.frame(o) {
			o.marks[o.m-1].end, o.marks[o.m-1].behind = o.bytes, q.at
		}
		if q.fd < 0 {
			return // a local error has ended the QP
		}
		if o.bytes == 0 {
			q.behind(q.at) // requests of no bytes have nothing to write
			q.unblock()
			return
		}
		o.seal()
		n, err := o.write(q.fd)
		if err != nil {
			q.lastWords()
			q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
			return
		}
		q.pulse.said = q.pulse.said || n > 0
		all := n == o.bytes
		if !all {
			q.partial(max(n, 0), carried, before)
		} else {
			q.carry.reset()
		}
		if q.carry.empty() {
			q.behind(q.at)
		}
		if !all {
			q.block()
			return
		}
	}
}

func (o *outbox) write(fd int) (int, error) {
	if o.n == 1 && o.from == o.used && o.bytes == o.used {
		return sys.Write(fd, o.buf[:o.used])
	}
	return sys.Writev(fd, o.vec[:o.n])
}

// partial goes back to what the socket has taken: n bytes, of which the first were carried.
func (q *qp) partial(n, carried int, before cursor) {
	o := &q.scq.out
	if n < carried {
		q.carry.drop(n)
		q.at = before
		return
	}
	q.carry.reset()
	begin := carried
	q.at = before
	for i := range o.marks[:o.m] {
		m := &o.marks[i]
		if n == begin {
			break
		}
		if n < m.end {
			q.behind(q.at)
			q.at = m.behind
			q.carry.keep(o, n, m.end)
			return
		}
		q.at = m.behind
		begin = m.end
	}
}

// keep takes the bytes from n to end of what the outbox held.
func (c *carry) keep(o *outbox, n, end int) {
	at := 0
	for _, v := range o.vec[:o.n] {
		length := int(v.Len)
		from, to := max(n, at), min(end, at+length)
		if from < to {
			b := vecBytes(v)[from-at : to-at]
			switch {
			case !o.owns(b):
				c.vec[c.n] = sys.Vec(b)
				c.n++
			case c.n > 0:
				c.tail = append(c.tail, b...)
			default:
				c.head = append(c.head, b...)
			}
		}
		at += length
	}
}

// carryAlive tells whether the memory that the rest of a frame lies in is still registered. If not, it ends the QP: the frame
// cannot be finished, nor another begun. The frame is the one between the two cursors.
func (q *qp) carryAlive() bool {
	if from := q.written; q.at.answer != from.answer || q.at.aoff != from.aoff {
		a := q.answers.at(from.answer)
		src, off := segmentAt(a.src[:a.nsrc], from.aoff)
		if _, err := q.dev.regions.find(q, src.Key, transport.RemoteRead, src.Offset+off, 0); err != nil {
			q.refuseRead(a, err)
			return false
		}
		return true
	}
	for i := q.written.next; ; i++ {
		if w := q.sq.at(i); w.total > q.written.off && !w.asks() {
			if !w.alive() {
				q.gone(w)
				return false
			}
			return true
		}
	}
}

// gone ends the QP over a request of which a region was deregistered.
func (q *qp) gone(w *wqe) {
	w.failed = transport.StatusLocalProt
	q.fail(fmt.Errorf("%w: a region of a posted request was deregistered before it was sent", transport.ErrInvalid),
		transport.StatusFlushed)
}

func (c *carry) gather(o *outbox) {
	if len(c.head) > 0 {
		o.direct(c.head)
	}
	for _, v := range c.vec[:c.n] {
		o.direct(vecBytes(v))
	}
	if len(c.tail) > 0 {
		o.direct(c.tail)
	}
}

// drop forgets the first n bytes, which have been written.
func (c *carry) drop(n int) {
	k := min(n, len(c.head))
	c.head = c.head[:copy(c.head, c.head[k:])]
	n -= k
	for n > 0 && c.n > 0 {
		v := vecBytes(c.vec[0])
		if n < len(v) {
			c.vec[0] = sys.Vec(v[n:])
			return
		}
		n -= len(v)
		c.n--
		copy(c.vec[:], c.vec[1:])
	}
	c.tail = c.tail[:copy(c.tail, c.tail[n:])]
}

// behind notes that the socket has taken everything up to a cursor.
func (q *qp) behind(now cursor) {
	for i := q.written.next; i != now.next; i++ {
		switch w := q.sq.at(i); {
		case !w.asks():
			w.done = true
		case w.total == 0:
			w.done = true
			q.read++
		}
	}
	q.answers.head = now.answer
	ended := now.ended && !q.written.ended
	q.written = now
	q.retire()
	if ended {
		q.closing = closeSent
		q.maybeClosed()
	}
}

func (q *qp) block() {
	if !q.blocked {
		q.blocked = true
		q.watch()
	}
}

func (q *qp) unblock() {
	if q.blocked {
		q.blocked = false
		q.watch()
	}
}

// watch has the pollers look for room to write exactly while that is wanted, where they look at all. A QP that is not attached yet is told
// so when it is.
func (q *qp) watch() {
	q.scq.rewatch(q)
	if q.rcq != q.scq {
		q.rcq.rewatch(q)
	}
}

// frame makes the next frame, if there is one that may go, and moves the cursor behind it.
func (q *qp) frame(o *outbox) bool {
	c := &q.at
	if q.quiet { // what is carried out here needs no frame
		for c.next != q.sq.tail && q.sq.at(c.next).here() && q.carryOut(o, q.sq.at(c.next)) {
			c.next++
		}
		return false
	}
	made := false
	switch {
	case !c.greeted:
		o.begin(header{op: opReady, flags: flagLast}, 0)
		c.greeted = true
		made = true
	case c.turn: // either may end the QP
		made = q.answerFrame(o) || q.fd >= 0 && q.requestFrame(o)
	default:
		made = q.requestFrame(o) || q.fd >= 0 && q.answerFrame(o)
	}
	if !made && q.fd >= 0 && q.closing == closeDue && !c.ended && q.sq.len() == 0 && c.answer == q.answers.tail && o.bytes == 0 {
		o.begin(header{op: opClose, flags: flagLast}, 0)
		c.ended = true
		made = true
	}
	if made {
		o.m++
		if q.checked && q.lanes == nil {
			o.sum()
		}
	}
	return made
}

// requestFrame makes the next frame of the send queue.
func (q *qp) requestFrame(o *outbox) bool {
	c := &q.at
	for c.next != q.sq.tail {
		w := q.sq.at(c.next)
		if w.flags&transport.FlagFence != 0 && c.off == 0 && q.read != c.reads {
			return false // earlier Reads first
		}
		switch w.op {
		case transport.OpRead:
			if c.reads-q.read >= q.most {
				return false
			}
			c.reads++
			c.next++
			if w.total == 0 {
				continue // nothing to ask for
			}
			q.readRequest(o, w)
			c.turn = true
			return true
		case transport.OpWrite, transport.OpWriteImm:
			if c.off < w.total {
				n := min(w.total-c.off, framePayload)
				if rest := w.total - c.off - n; rest > 0 && rest < tailSize {
					n -= tailSize // the last bytes of a Write stay in one frame
				}
				h := header{length: n, op: opWrite, a: uint64(w.remote[0].Key), b: w.remote[0].Offset + uint64(c.off)}
				if c.off+n == w.total {
					h.flags = flagLast
				}
				if !q.payload(o, h, w, c.off, n) {
					return false
				}
				if c.off += n; c.off == w.total && w.op == transport.OpWrite {
					c.next, c.off = c.next+1, 0
				}
				c.turn = true
				return true
			}
			if w.op == transport.OpWrite { // of no bytes
				c.next++
				continue
			}
			h := header{op: opImmediate, flags: flagLast, a: w.number, b: w.imm}
			if w.flags&transport.FlagSolicited != 0 {
				h.flags |= flagSolicited
			}
			o.begin(h, 0)
			c.next, c.off = c.next+1, 0
			return true
		case transport.OpSend, transport.OpSendInvalidate:
			if w.op == transport.OpSendInvalidate && c.off == w.total {
				q.invalidateFrame(o, w)
				c.next, c.off = c.next+1, 0
				return true
			}
			n := min(w.total-c.off, framePayload)
			h := header{length: n, op: opSend, a: w.number, b: uint64(c.off)}
			if c.off+n == w.total && w.op == transport.OpSend {
				h.flags = flagLast
				if w.flags&transport.FlagSolicited != 0 {
					h.flags |= flagSolicited
				}
			}
			if !q.payload(o, h, w, c.off, n) {
				return false
			}
			if c.off += n; c.off == w.total && w.op == transport.OpSend {
				c.next, c.off = c.next+1, 0
			}
			c.turn = true
			return true
		case transport.OpFetchAdd, transport.OpCompareSwap:
			if c.reads-q.read >= q.most {
				return false
			}
			c.reads++
			c.next++
			q.atomicFrame(o, w)
			c.turn = true
			return true
		case transport.OpBind, transport.OpInvalidate:
			if !q.carryOut(o, w) {
				return false
			}
			c.next++
		}
	}
	return false
}

// payload puts a frame with n bytes of a request, from an offset on. A region that is gone ends the QP.
func (q *qp) payload(o *outbox, h header, w *wqe, off, n int) bool {
	if w.flags&transport.FlagInline != 0 {
		copy(o.begin(h, n), w.inline[off:off+n])
		return true
	}
	if !w.alive() {
		if o.bytes == 0 { // earlier frames go out first
			q.gone(w)
		}
		return false
	}
	if n <= copyMax {
		b := o.begin(h, n)
		for len(b) > 0 {
			p, at, k := span(w.local, off, len(b))
			copy(b, p.r.mem[at:at+k])
			b, off = b[k:], off+k
		}
		return true
	}
	o.begin(h, 0)
	for n > 0 {
		p, at, k := span(w.local, off, n)
		o.direct(p.r.mem[at : at+k])
		n, off = n-k, off+k
	}
	return true
}

// readRequest asks the peer to write what a Read names into what it names here (R1).
func (q *qp) readRequest(o *outbox, w *wqe) {
	n := (len(w.remote) + len(w.local)) * segmentSize
	b := o.begin(header{length: n, op: opReadRequest, flags: flagLast, a: w.number, b: uint64(len(w.remote))<<32 | uint64(len(w.local))}, n)
	for _, s := range w.remote {
		putSegment(b, s)
		b = b[segmentSize:]
	}
	for _, p := range w.local {
		putSegment(b, transport.Segment{Key: p.key, Offset: uint64(p.off), Length: uint64(p.n)})
		b = b[segmentSize:]
	}
}

// answerFrame makes the next frame of the oldest Read of the peer: a Write into the segments that it named (R2, R3), or, behind the
// last of them, the Read's number (R4).
func (q *qp) answerFrame(o *outbox) bool {
	c := &q.at
	if c.answer == q.answers.tail {
		return false
	}
	a := q.answers.at(c.answer)
	c.turn = false
	if a.refused != nil {
		if o.bytes == 0 { // earlier frames go out first
			q.refuseRead(a, a.refused)
		}
		return false
	}
	if a.atomic {
		o.begin(header{op: opAtomicDone, flags: flagLast, a: a.number, b: a.original}, 0)
		c.answer++
		return true
	}
	if c.aoff == a.total {
		o.begin(header{op: opReadDone, flags: flagLast, a: a.number, b: uint64(a.total)}, 0)
		c.answer, c.aoff = c.answer+1, 0
		return true
	}
	src, soff := segmentAt(a.src[:a.nsrc], c.aoff)
	dst, doff := segmentAt(a.dst[:a.ndst], c.aoff)
	n := int(min(src.Length-soff, dst.Length-doff, framePayload))
	if q.checked {
		n = min(n, checkedAnswer, outSize-o.used-laneHeaderSize-2*sumSize)
	}
	r, err := q.dev.regions.find(q, src.Key, transport.RemoteRead, src.Offset+soff, uint64(n))
	if err != nil {
		a.refused = err
		return q.answerFrame(o)
	}
	h := header{length: n, op: opReadWrite, a: uint64(dst.Key), b: dst.Offset + doff}
	if c.aoff+n == a.total {
		h.flags = flagLast
	}
	mem := r.mem[src.Offset+soff:][:n]
	if n <= copyMax || q.checked {
		copy(o.begin(h, n), mem)
	} else {
		o.begin(h, 0)
		o.direct(mem)
	}
	c.aoff += n
	return true
}

// segmentAt finds the segment that byte off of a list lies in, and the offset there.
func segmentAt(list []transport.Segment, off int) (transport.Segment, uint64) {
	o := uint64(off)
	for _, s := range list {
		if o < s.Length {
			return s, o
		}
		o -= s.Length
	}
	return transport.Segment{}, 0
}
