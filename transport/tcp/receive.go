package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

const (
	stagingSize = 64 << 10
	directMin   = 16 << 10 // of a frame's rest: it is read straight to its place
	behindSize  = 4 << 10  // read into staging behind it, for the next header in the same call
	readsAPass  = 8        // reads of one QP before the others have their turn
)

// incoming is the frame that is being received.
type incoming struct {
	inside bool
	have   int // bytes of raw: of a header, or of the CRC behind a payload
	size   int // bytes of a header, with its CRC if the queue pair has them
	raw    [headerSize + sumSize]byte
	header
	left int     // payload bytes that have not come
	r    *region // tagged: where they go
	at   int
	off  int // untagged: bytes of the message that are placed; answers to Reads may come between its frames

	last [tailSize]byte // what has come of the last bytes of a Write, until all of them have
	held int            // of last

	control []byte // payload that goes to no region

	sum uint32 // CRC of the payload so far, if the queue pair has them
}

// receive places what has come, if anything has. due tells whether that may be answered by something that is to be sent.
func (q *qp) receive() (came, due bool) {
	if q.secure != nil {
		return q.receiveSecure(), true // crypto/tls answers by itself
	}
	staging := q.rcq.staging
	for range readsAPass {
		asked, n := len(staging), 0
		var err error
		if dst := q.direct(); dst != nil {
			asked = len(dst) + behindSize
			v := [2]sys.Iovec{sys.Vec(dst), sys.Vec(staging[:behindSize])}
			n, err = sys.Readv(q.fd, v[:])
			if placed := min(n, len(dst)); placed > 0 {
				if q.checked {
					q.in.sum = crc32.Update(q.in.sum, castagnoli, dst[:placed])
				}
				q.advance(placed)
			}
			if n > len(dst) {
				err = errors.Join(err, q.parse(staging[:n-len(dst)]))
			}
			due = true
		} else if n, err = sys.Read(q.fd, staging); n > 0 && !q.lone(staging[:n]) {
			err = q.parse(staging[:n])
			due = true
		}
		switch {
		case err != nil:
			q.receiveFailed(err)
			return true, true
		case q.fd < 0 || n < 0:
			return came, due
		case n == 0:
			// Even behind the peer's Close: it stays for ours, and for the Reads that it answers, until both have closed.
			q.fail(fmt.Errorf("%w: the connection ended: %w", transport.ErrPeerLost, io.ErrUnexpectedEOF), transport.StatusFatal)
			return true, true
		}
		q.pulse.heard = true
		if n < asked {
			return true, due // nothing is left in the socket
		}
		came = true
	}
	return came, due
}

// loneWrite is the first word of the only frame of a Write, without its length.
const loneWrite = uint64(opWrite)<<32 | flagLast<<40

// lone places what has come if that is one whole Write, as by far the most that comes by itself is; it does nothing with anything else, or anything
// that is wrong with it.
func (q *qp) lone(b []byte) bool {
	i := &q.in
	n := len(b) - headerSize
	if i.inside || i.have > 0 || q.checked || q.quiet || q.peerEnd || n < tailSize {
		return false
	}
	if binary.LittleEndian.Uint64(b) != loneWrite|uint64(n) || n > framePayload {
		return false
	}
	key, at := transport.Key(binary.LittleEndian.Uint64(b[8:])), binary.LittleEndian.Uint64(b[16:])
	r, err := q.dev.regions.find(q, key, transport.RemoteWrite, at, uint64(n))
	if err != nil {
		return false
	}
	placeTail(r.mem[at:at+uint64(n)], b[headerSize:])
	q.mark()
	return true
}

// violation is an error that the peer is told of with a code.
type violation struct {
	code   terminate
	status transport.Status // of the receive that it ends, if any
	err    error
}

func (v *violation) Error() string { return v.err.Error() }
func (v *violation) Unwrap() error { return v.err }

func (q *qp) receiveFailed(err error) {
	var v *violation
	switch {
	case errors.As(err, &v):
		if v.status != 0 {
			if r := q.rq.front(); r != nil {
				wc := q.flushed(r.id, transport.OpRecv)
				wc.Status, wc.Err = v.status, q.blame(v.err)
				q.rq.pop()
				q.rcq.push(wc)
			}
		}
		q.fail(err, transport.StatusFlushed)
	case errors.Is(err, errTerminated), errors.Is(err, transport.ErrProtocol), errors.Is(err, transport.ErrAccess):
		q.fail(err, transport.StatusFlushed)
	default:
		q.fail(fmt.Errorf("%w: %w", transport.ErrPeerLost, err), transport.StatusFatal)
	}
}

// direct is the memory that the rest of the present frame may be read into without a copy: all but its last 8 bytes, which have
// to come last. Nil if it is not worth it.
func (q *qp) direct() []byte {
	i := &q.in
	if !i.inside || i.left < directMin {
		return nil
	}
	n := i.left - tailSize
	switch i.op {
	case opWrite, opReadWrite:
		if i.r.Key() != transport.Key(i.a) {
			return nil // given up meanwhile: place says so
		}
		if q.checked && i.op == opWrite {
			return nil // its target may be written by others meanwhile: the CRC is that of what came, not of what stands there
		}
		return i.r.mem[i.at : i.at+n]
	case opSend:
		e := q.rq.front()
		p, at, k := span(e.local, i.off, n)
		if p == nil || !p.alive() {
			return nil
		}
		return p.r.mem[at : at+k]
	}
	return nil
}

// advance counts n bytes of the present frame as placed.
func (q *qp) advance(n int) {
	i := &q.in
	i.left -= n
	i.at += n
	if i.op == opSend {
		i.off += n
	}
}

// parse takes bytes off the stream.
func (q *qp) parse(b []byte) error {
	i := &q.in
	for {
		if !i.inside {
			if i.have == 0 && len(b) >= i.size {
				if err := q.begin(b); err != nil {
					return err
				}
				b = b[i.size:]
			} else {
				n := copy(i.raw[i.have:i.size], b)
				i.have += n
				b = b[n:]
				if i.have < i.size {
					return nil
				}
				i.have = 0
				if err := q.begin(i.raw[:]); err != nil {
					return err
				}
			}
		}
		n := min(len(b), i.left)
		if n > 0 {
			if err := q.place(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		if i.left > 0 {
			return nil
		}
		if q.checked && i.length > 0 {
			n := copy(i.raw[i.have:sumSize], b)
			i.have += n
			b = b[n:]
			if i.have < sumSize {
				return nil
			}
			i.have = 0
			if err := q.checkPayload(i.raw[:sumSize]); err != nil {
				return err
			}
		}
		i.inside = false
		if err := q.end(); err != nil {
			return err
		}
		if len(b) == 0 || q.fd < 0 {
			return nil
		}
	}
}

// begin takes a frame's header and checks what can be checked before its payload.
func (q *qp) begin(b []byte) error {
	i := &q.in
	if q.checked {
		if err := checkHeader(b, headerSize); err != nil {
			return err
		}
		i.sum = 0
	}
	h, err := parseHeader(b)
	if err != nil {
		return err
	}
	i.header, i.left, i.inside = h, h.length, true
	if q.peerEnd && h.op != opTerminate && h.op != opReadWrite && h.op != opReadDone && h.op != opAtomicDone && h.op != opAlive {
		return fmt.Errorf("%w: %v behind Close", transport.ErrProtocol, h.op)
	}
	if q.quiet {
		q.quiet = false // whatever frame it is, the peer is in RDMA mode
		if h.op != opReady {
			return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, h.op)
		}
		return nil
	}
	switch h.op {
	case opReady:
		return fmt.Errorf("%w: Ready a second time, or from the responder", transport.ErrProtocol)
	case opWrite:
		r, err := q.dev.regions.find(q, transport.Key(h.a), transport.RemoteWrite, h.b, uint64(h.length))
		if err != nil {
			return &violation{code: terminateAccess, err: fmt.Errorf("Write from the peer: %w", err)}
		}
		i.r, i.at = r, int(h.b)
	case opReadWrite:
		return q.beginReadWrite(h)
	case opSend:
		return q.beginSend(h)
	case opReadRequest, opTerminate, opAtomic:
		i.control = i.control[:0]
	}
	return nil
}

// beginSend checks an untagged frame: a receive is posted, message number, offset, room.
func (q *qp) beginSend(h header) error {
	e := q.rq.front()
	i := &q.in
	switch {
	case e == nil:
		return &violation{code: terminateNoRecv, err: fmt.Errorf("%w: a message of the peer found no Recv posted", transport.ErrProtocol)}
	case h.a != q.recvMsn || h.b != uint64(i.off):
		return fmt.Errorf("%w: Send %d at %d where %d at %d is due", transport.ErrProtocol, h.a, h.b, q.recvMsn, i.off)
	case h.length > e.total-i.off:
		return &violation{code: terminateTooLong, status: transport.StatusLocalLength,
			err: fmt.Errorf("%w: a message of the peer is longer than the posted Recv of %d bytes", transport.ErrProtocol, e.total)}
	}
	return nil
}

// beginReadWrite checks a Write that one of our Reads has asked for: it must go on exactly where the last one ended. Nothing
// outside the named destination is ever written (R6).
func (q *qp) beginReadWrite(h header) error {
	w := q.reading()
	if w == nil || w.op != transport.OpRead {
		return fmt.Errorf("%w: data of a Read that nobody has asked for", transport.ErrProtocol)
	}
	p, at, n := span(w.local, w.got, h.length)
	if p == nil || n != h.length || transport.Key(h.a) != p.key || h.b != uint64(at) {
		return fmt.Errorf("%w: %d bytes of a Read for %#x at %d, which is not what is due", transport.ErrProtocol, h.length, h.a, h.b)
	}
	if !p.alive() {
		return fmt.Errorf("%w: the destination of a Read was deregistered before it was complete", transport.ErrAccess)
	}
	q.in.r, q.in.at = p.r, at
	return nil
}

// reading is our oldest Read or Atomic that is not done. Everything before it in the queue is, so it is the head.
func (q *qp) reading() *wqe {
	if q.sq.head == q.written.next || q.sq.head == q.sq.tail {
		return nil
	}
	if w := q.sq.at(q.sq.head); w.asks() && !w.done {
		return w
	}
	return nil
}

// place puts a piece of the present frame's payload where it belongs.
func (q *qp) place(b []byte) error {
	i := &q.in
	if q.checked {
		i.sum = crc32.Update(i.sum, castagnoli, b)
	}
	switch i.op {
	case opWrite, opReadWrite:
		if err := q.placeable(); err != nil {
			return err
		}
		q.placeTagged(b)
	case opSend:
		e := q.rq.front()
		for len(b) > 0 {
			p, at, n := span(e.local, i.off, len(b))
			if !p.alive() {
				return &violation{code: terminateNoRecv, status: transport.StatusLocalProt,
					err: fmt.Errorf("%w: the region of a posted Recv was deregistered", transport.ErrInvalid)}
			}
			copy(p.r.mem[at:at+n], b)
			b = b[n:]
			q.advance(n)
		}
	case opReadRequest, opTerminate, opAtomic:
		i.control = append(i.control, b...)
		i.left -= len(b)
	}
	return nil
}

// placeable refuses a piece of a tagged frame of which the region was given up meanwhile.
func (q *qp) placeable() error {
	if i := &q.in; i.r.Key() != transport.Key(i.a) {
		return &violation{code: terminateAccess,
			err: fmt.Errorf("%w: the region of key %#x was deregistered while the peer wrote it", transport.ErrAccess, i.a)}
	}
	return nil
}

// placeTagged puts a piece of a tagged frame in its place: its last bytes after all others, and as one; where there is a
// checksum, when that has been found right.
func (q *qp) placeTagged(b []byte) {
	i := &q.in
	if len(b) == i.left && i.held == 0 && !q.checked {
		placeTail(i.r.mem[i.at:i.at+len(b)], b)
		q.advance(len(b))
		return
	}
	if n := min(len(b), i.left-tailSize); n > 0 {
		copy(i.r.mem[i.at:i.at+n], b)
		q.advance(n)
		b = b[n:]
	}
	i.held += copy(i.last[i.held:], b)
	i.left -= len(b)
	if i.left == 0 && !q.checked {
		q.placeHeld()
	}
}

// placeHeld places the last bytes of a tagged frame.
func (q *qp) placeHeld() {
	i := &q.in
	placeTail(i.r.mem[i.at:i.at+i.held], i.last[:i.held])
	i.held = 0
}

// end finishes a frame whose payload is there.
func (q *qp) end() error {
	i := &q.in
	switch i.op {
	case opWrite:
		q.mark()
	case opReadWrite:
		q.reading().got += i.length
	case opSend:
		if i.flags&flagLast != 0 {
			e := q.rq.front()
			wc, notify := transport.WC{ID: e.id, QP: q.num, Op: transport.OpRecv, Bytes: i.off}, e.notify
			q.rq.pop() // first: if the queue is overrun, push flushes what is posted
			q.recvMsn++
			i.off = 0
			q.received(wc, notify)
		}
	case opImmediate:
		e := q.rq.front()
		if e == nil {
			return &violation{code: terminateNoRecv, err: fmt.Errorf("%w: an immediate of the peer found no Recv posted", transport.ErrProtocol)}
		}
		if i.a != q.recvMsn || i.off > 0 {
			return fmt.Errorf("%w: message %d where %d at %d is due", transport.ErrProtocol, i.a, q.recvMsn, i.off)
		}
		wc, notify := transport.WC{ID: e.id, QP: q.num, Op: transport.OpRecv, Imm: i.b, HasImm: true}, e.notify
		q.rq.pop()
		q.recvMsn++
		q.received(wc, notify)
	case opReadRequest:
		return q.asked()
	case opReadDone:
		w := q.reading()
		if w == nil || w.op != transport.OpRead || w.number != i.a || w.got != w.total || i.b != uint64(w.total) {
			return fmt.Errorf("%w: end of Read %d, %d bytes, which is not what is due", transport.ErrProtocol, i.a, i.b)
		}
		w.done = true
		q.read++
		q.retire()
	case opClose:
		if q.answers.head != q.answers.tail {
			return fmt.Errorf("%w: Close before its Reads were complete", transport.ErrProtocol)
		}
		q.peerEnd = true
		if q.err == nil {
			q.err = fmt.Errorf("rank %d at %s: %w", q.peer, q.remote, transport.ErrClosed)
		}
		if q.state == transport.StateReady {
			q.state = transport.StateDraining
		}
		q.maybeClosed()
	case opTerminate:
		return q.terminated()
	case opAtomic:
		return q.askedAtomic()
	case opAtomicDone:
		return q.atomicDone()
	case opInvalidate:
		return q.invalidated()
	}
	return nil
}

// mark has the queue tell of what was placed with no completion.
func (q *qp) mark() {
	if !q.marked {
		q.marked = true
		q.rcq.placed = append(q.rcq.placed, q)
		q.rcq.match(transport.NotifyPlaced)
	}
}

// received reports a message that has filled a posted Recv; the present frame is its last.
func (q *qp) received(wc transport.WC, notify bool) {
	solicited := q.in.flags&flagSolicited != 0
	q.rcq.push(wc)
	if solicited {
		q.rcq.match(transport.NotifySolicited)
	}
	if notify {
		q.rcq.raise()
	}
}

// asked takes a Read Request: it is checked at once, and answered in its turn (R2, R5, R6).
func (q *qp) asked() error {
	i := &q.in
	nsrc, ndst := int(i.b>>32), int(uint32(i.b))
	if nsrc < 1 || nsrc > maxSegments || ndst < 1 || ndst > maxSegments || len(i.control) != (nsrc+ndst)*segmentSize {
		return fmt.Errorf("%w: a Read of %d into %d segments, %d bytes of them", transport.ErrProtocol, nsrc, ndst, len(i.control))
	}
	a, err := q.answer(i.a)
	if err != nil || a.refused != nil {
		return err
	}
	a.nsrc, a.ndst = nsrc, ndst
	b := i.control
	var far uint64
	for k := range nsrc {
		s := parseSegment(b)
		b = b[segmentSize:]
		if _, err := q.dev.regions.find(q, s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
			a.refused = err
			return nil
		}
		a.src[k] = s
		a.total += int(s.Length)
	}
	for k := range ndst {
		a.dst[k] = parseSegment(b)
		b = b[segmentSize:]
		if a.dst[k].Length > maxMessage {
			return fmt.Errorf("%w: a Read into a segment of %d bytes", transport.ErrProtocol, a.dst[k].Length)
		}
		far += a.dst[k].Length
	}
	if far != uint64(a.total) || a.total == 0 {
		return fmt.Errorf("%w: a Read of %d bytes into %d", transport.ErrProtocol, a.total, far)
	}
	return nil
}

// answer makes an entry for a Read or an Atomic of the peer. Behind one that is refused all are: the connection ends before their turn.
func (q *qp) answer(number uint64) (*answer, error) {
	n := q.answers.tail - q.answers.head
	if n >= maxReads {
		return nil, &violation{code: terminateReads, err: fmt.Errorf("%w: more than %d Reads outstanding", transport.ErrProtocol, maxReads)}
	}
	if number < q.askedNext {
		return nil, fmt.Errorf("%w: Read or Atomic %d behind %d", transport.ErrProtocol, number, q.askedNext-1)
	}
	q.askedNext = number + 1
	a := q.answers.push()
	a.number, a.atomic, a.nsrc, a.ndst, a.total, a.refused = number, false, 0, 0, 0, nil
	if n > 0 {
		a.refused = q.answers.at(q.answers.tail - 2).refused
	}
	return a, nil
}
