package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

const (
	bulkMin = 64 << 10 // smallest request or answer that is split over the lanes
	// a pass acknowledges as soon as this many frames (bytes) are unacknowledged
	ackFrames = 64
	ackBytes  = 2 << 20
)

// laneSender is the sending side of a queue pair over lanes: it numbers the frames, assigns them to lanes,
// and resends them.
type laneSender struct {
	m       *multiLane
	q       *qp
	out     *sequence.Outbound[sentFrame]
	at      position // the additional state of the queue pair's cursor
	numbers []uint64 // of the frames in the batch
	frame   []byte   // buffer for an unsequenced frame
}

func (s *laneSender) init(m *multiLane) {
	s.m, s.q, s.out = m, m.q, sequence.NewOutbound[sentFrame]()
}

// position is the part of a cursor that only lanes need.
type position struct {
	first uint64 // number of the first frame of the current Write
	asks  uint64 // Reads and Atomics passed that had a frame
}

// sentFrame is a sequenced frame that may have to be resent. It is made again from the request rather than
// from a copy: the request's memory belongs to its poster only when the frame is acknowledged.
type sentFrame struct {
	frame.Header
	ref    uint64
	source uint32 // index of the request or answer in its queue
	off    int    // offset of the frame's first byte
	after  cursor // after it
	place  position
}

func (s *laneSender) hasFrames() bool {
	if s.q.hasFrames() || s.q.awaitingFirstFrame {
		return s.q.hasFrames()
	}
	if _, ok := s.out.Again(0); ok || s.m.failover.Due() {
		return true
	}
	for _, l := range s.m.conns {
		if !l.greeted || !l.partial.Empty() || l.link.Pending() > 0 {
			return true
		}
	}
	return false
}

// retryBlocked tries to write to the lanes that had no room.
func (s *laneSender) retryBlocked() {
	for i := 0; i < len(s.m.conns); i++ {
		if l := s.m.conns[i]; l.blocked {
			l.blocked = false
			if s.fill(l, false); !s.q.open {
				return
			}
			if !l.blocked && l.fd >= 0 {
				s.q.rewatch(&l.conn)
			}
		}
	}
	s.q.blocked = s.pick() == nil
}

// transmit sends frames over lanes until there are no frames or no lane has room.
func (s *laneSender) transmit() {
	q := s.q
	if q.awaitingFirstFrame {
		return
	}
	s.sendReady()
	if q.open && s.m.failover.Due() {
		s.sendLost()
	}
	for q.open {
		l := s.pick()
		if q.blocked = l == nil; q.blocked || !s.fill(l, true) {
			break
		}
	}
	if q.open && s.m.recv.unackedFrames() > 0 {
		s.acknowledge()
	}
}

// sendReady sends Ready on the lanes that this side dialed.
func (s *laneSender) sendReady() {
	for i := 0; i < len(s.m.conns); i++ {
		if l := s.m.conns[i]; !l.greeted {
			l.greeted = true
			l.sendUnnumbered(frame.Header{Op: frame.Ready, Flags: frame.Last}, nil)
		}
	}
}

// pick chooses the lane for the next frame: the first ready one for small messages, the last ready one for
// parts of large ones, so that small messages do not queue behind large ones. Filling one lane before using
// the next costs less than checking all of them. A lane accepts little more than it can send (laneUnsent), so
// all are used when one cannot carry everything. An answer uses its designated lane, and waits while that has
// no room.
func (s *laneSender) pick() *laneConn {
	designated := s.designated()
	if designated != nil && designated.ready() {
		return designated
	}
	if len(s.m.conns) > 1 && s.bulk(designated == nil) {
		for i := len(s.m.conns) - 1; i >= 0; i-- {
			if l := s.m.conns[i]; l.ready() {
				return l
			}
		}
		return nil
	}
	for _, l := range s.m.conns {
		if l.ready() {
			return l
		}
	}
	return nil
}

func (l *laneConn) ready() bool { return !l.blocked && !l.awaitingFirstFrame }

// designated returns the lane that the peer has designated for the next answer (R1); nil if there is no
// answer, or if any lane will do: none was designated, or it does not exist any more.
func (s *laneSender) designated() *laneConn {
	q := s.q
	if q.at.response == q.answer.queue.Tail {
		return nil
	}
	lane := q.answer.queue.At(q.at.response).lane
	if lane == transport.AnyLane {
		return nil
	}
	return s.m.find(uint16(lane - 1))
}

// frameFor makes the next frame that may be sent over a lane.
func (s *laneSender) frameFor(l *laneConn, o *frame.Batch) bool {
	designated := s.designated()
	s.q.answer.elsewhere = designated != nil && designated != l
	return s.q.frame(o)
}

// bulk reports whether the next frame is part of a large transfer. answers says whether an answer may be sent
// now.
func (s *laneSender) bulk(answers bool) bool {
	q := s.q
	if _, ok := s.out.Again(1); ok {
		return true
	}
	if q.at.next != q.SQ.Tail {
		if w := q.SQ.At(q.at.next); w.Total-q.at.off >= bulkMin && !w.Asks() {
			return true
		}
	}
	if answers && q.at.response != q.answer.queue.Tail {
		return q.answer.queue.At(q.at.response).total-q.at.responseOff >= bulkMin
	}
	return false
}

// laneWrite describes a write to a lane, and the state of the sequence before it.
type laneWrite struct {
	rest   int    // bytes of a frame that the lane has sent in part
	again  int    // resent frames, which precede the new ones
	first  uint64 // number of the first new frame
	before cursor
	place  position
}

// fill sends one batch over a lane that has room. It reports whether to continue: there may be more frames,
// and lanes with room for them.
func (s *laneSender) fill(l *laneConn, fresh bool) (more bool) {
	q, o := s.q, &s.q.scq.out
	if l.link.Pending() > 0 {
		return s.flush(l)
	}
	o.Reset(l.in.size)
	s.numbers = s.numbers[:0]
	if !l.partial.Empty() {
		if !s.partialAlive(l) {
			return false
		}
		l.partial.AppendTo(o)
	}
	w := laneWrite{rest: o.Size(), first: s.out.Next(), before: q.at, place: s.at}
	if fresh && !s.gather(l, &w) {
		return false // a local error has ended the queue pair
	}
	if o.Empty() {
		s.skipped()
		return false
	}
	o.Seal()
	n, err := l.link.Write(o)
	if err != nil {
		s.takeBack(&w)
		l.readRest()
		s.m.lose(l, err)
		return q.open
	}
	s.onWritten(l, max(n, 0), &w)
	return true
}

// gather puts frames into the batch: first those to be resent, then new ones.
func (s *laneSender) gather(l *laneConn, w *laneWrite) bool {
	q, o := s.q, &s.q.scq.out
	limit := l.link.MaxWrite()
	for o.Size() < limit && !o.Full() {
		n, ok := s.out.Again(w.again)
		if !ok {
			break
		}
		f := s.out.What(n)
		if !s.remake(o, f) {
			if !q.open {
				return false
			}
			break
		}
		s.stamp(o, l, n, f.ref)
		w.again++
	}
	for o.Size() < limit && !o.Full() && s.out.Room() && s.frameFor(l, o) {
		n := s.out.Add(l.number, sentFrame{})
		s.note(o, n)
		s.stamp(o, l, n, s.out.What(n).ref)
	}
	return q.open
}

// takeBack undoes gather for the new frames: none of them was sent.
func (s *laneSender) takeBack(w *laneWrite) {
	s.out.TakeBack(w.first)
	s.q.at, s.at = w.before, w.place
}

// onWritten notes that the lane has accepted n bytes of the batch.
func (s *laneSender) onWritten(l *laneConn, n int, w *laneWrite) {
	o := &s.q.scq.out
	l.keepalive.Sent = l.keepalive.Sent || n > 0
	sent := l.keepPartial(n, w.rest)
	if sent > 0 {
		s.m.recv.onAckSent()
	}
	again := min(sent, w.again)
	for _, number := range s.numbers[:again] {
		s.m.stats.Resent += uint64(s.out.What(number).Length)
	}
	s.out.Sent(again, l.number)
	switch {
	case n == o.Size():
		s.skipped()
	case sent <= w.again:
		s.takeBack(w)
	default:
		last := s.numbers[sent-1]
		f := s.out.What(last)
		s.out.TakeBack(last + 1)
		s.q.at, s.at = f.after, f.place
	}
	if n < o.Size() || l.link.Pending() > 0 {
		l.block()
	}
}

// keepPartial keeps the rest of the frame that the lane has accepted in part: n bytes of the batch, which
// begins with rest bytes of an earlier frame. It returns how many of the batch's own frames were accepted, at
// least in part.
func (l *laneConn) keepPartial(n, rest int) (sent int) {
	if n < rest {
		l.partial.Advance(n)
		return 0
	}
	l.partial.Reset()
	l.partialNumber = 0
	o, begin := &l.q.scq.out, rest
	for i, end := range o.Frames() {
		if n <= begin {
			break
		}
		if n < end {
			l.partial.Save(o, n, end)
			l.partialNumber = l.m.send.numbers[i]
		}
		begin = end
		sent++
	}
	return sent
}

// note records how frame n, made last, can be made again.
func (s *laneSender) note(o *frame.Batch, n uint64) {
	q := s.q
	f := s.out.What(n)
	h, _ := frame.Parse(o.Last()) // ours
	f.Header = h
	switch h.Op {
	case frame.ReadWrite:
		f.source, f.off = q.at.response, q.at.responseOff-h.Length
		if q.at.responseOff == 0 {
			f.source = q.at.response - 1
			f.off = q.answer.queue.At(f.source).total - h.Length
		}
		f.ref = q.answer.queue.At(f.source).number
	case frame.AtomicDone, frame.Close:
	default:
		f.source, f.off = q.at.next, q.at.off-h.Length
		if q.at.off == 0 {
			f.source = q.at.next - 1
			f.off = q.SQ.At(f.source).Total - h.Length
		}
		switch h.Op {
		case frame.Write:
			if f.off == 0 {
				s.at.first = n
			}
			f.ref = s.at.first
		case frame.ReadRequest, frame.Atomic:
			f.ref = s.at.asks
			s.at.asks++
			q.SQ.At(f.source).Begun = 0
		}
	}
	f.after, f.place = q.at, s.at
}

// stamp finishes the frame made last.
func (s *laneSender) stamp(o *frame.Batch, l *laneConn, n, ref uint64) {
	frame.PutWords(o.Last(), l.number, n, s.m.recv.in.Next(), ref)
	if s.q.checked {
		o.Sum()
	}
	o.Finish()
	s.numbers = append(s.numbers, n)
}

// remake makes a frame again.
func (s *laneSender) remake(o *frame.Batch, f *sentFrame) bool {
	q := s.q
	switch f.Op {
	case frame.Write, frame.Send:
		if f.Length == 0 {
			o.Begin(f.Header, 0)
			return true
		}
		return q.payload(o, f.Header, q.SQ.At(f.source), f.off, f.Length)
	case frame.ReadRequest:
		q.readRequest(o, q.SQ.At(f.source))
	case frame.Atomic:
		q.atomicFrame(o, q.SQ.At(f.source))
	case frame.ReadWrite:
		return s.remakeResponse(o, f)
	default:
		o.Begin(f.Header, 0)
	}
	return true
}

// remakeResponse makes a frame of an answer again. No region is a view here: see Device.Query.
func (s *laneSender) remakeResponse(o *frame.Batch, f *sentFrame) bool {
	q := s.q
	a := q.answer.queue.At(f.source)
	src, off := verbs.SegmentAt(a.src[:a.nsrc], f.off)
	r, err := q.PD.Find(src.Key, transport.RemoteRead, src.Offset+off, uint64(f.Length))
	if err != nil {
		if o.Empty() {
			q.Refuse(a.number, a.atomic, err)
		}
		return false
	}
	at := int(src.Offset + off)
	if !q.answer.copies(r) {
		o.Begin(f.Header, 0)
		o.Direct(r.Mem[at:][:f.Length])
		return true
	}
	if f.Length > o.MaxCopy() {
		return false // the next write has room
	}
	copy(o.Begin(f.Header, f.Length), r.Mem[at:])
	q.answer.answered.Copied += uint64(f.Length)
	return true
}

// skipped notes the requests without bytes that the cursor has passed: they are done when all frames before
// them are acknowledged.
func (s *laneSender) skipped() {
	if s.out.First() == s.out.Next() {
		s.q.onWritten(s.q.at)
	} else {
		s.out.What(s.out.Next() - 1).after = s.q.at
	}
}

// partialAlive reports whether the memory of a partly sent frame is still registered. If not, it ends the
// queue pair.
func (s *laneSender) partialAlive(l *laneConn) bool {
	if !l.partial.Gathers() {
		return true
	}
	q := s.q
	f := s.out.What(l.partialNumber)
	if f.Op != frame.ReadWrite {
		w := q.SQ.At(f.source)
		if !w.Alive() {
			q.RegionGone(w)
			return false
		}
		return true
	}
	return q.answer.alive(f.source, f.off)
}

// readRest reads what the peer sent before a lane broke that can no longer be written.
func (l *laneConn) readRest() {
	for range readRestPasses {
		if l.fd < 0 || !l.read() {
			return
		}
	}
}

// flush writes the link's pending bytes to the socket.
func (s *laneSender) flush(l *laneConn) bool {
	progress, err := l.link.Flush()
	if err != nil {
		s.m.lose(l, err)
		return true
	}
	l.keepalive.Sent = l.keepalive.Sent || progress
	if l.link.Pending() > 0 {
		l.block()
	}
	return true
}

// sendUnnumbered sends an unsequenced frame, after the rest of a partly sent one. It reports whether the
// frame was sent; it is not if the socket is full.
func (l *laneConn) sendUnnumbered(h frame.Header, payload []byte) bool {
	m := l.m
	if !l.ready() || !l.partial.Empty() || l.fd < 0 {
		return false
	}
	m.send.frame = frame.AppendOverLane(m.send.frame[:0], h, l.number, 0, m.recv.in.Next(), 0, payload,
		m.q.checked)
	n, err := l.link.WriteFrame(m.send.frame)
	if err != nil {
		m.lose(l, err)
		return false
	}
	l.keepalive.Sent = l.keepalive.Sent || n > 0
	l.partialNumber = 0
	l.keepRest(m.send.frame, n)
	if l.link.Pending() > 0 {
		l.block()
	}
	m.recv.onAckSent()
	return true
}

// idleLane returns a lane that can send a frame at once, or nil.
func (s *laneSender) idleLane() *laneConn {
	for _, l := range s.m.conns {
		if l.ready() && l.greeted && l.partial.Empty() {
			return l
		}
	}
	return nil
}

// acknowledge acknowledges received frames, when no other frame has done so.
func (s *laneSender) acknowledge() {
	if l := s.idleLane(); l != nil {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}

// sendAlive sends a sign of life over a lane. If the socket is full it is not needed.
func (l *laneConn) sendAlive() {
	if l.greeted {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}

// refused records the status of the request whose frame n the peer rejected.
func (s *laneSender) refused(n uint64, status transport.Status) {
	if n >= s.out.First() && n < s.out.Next() {
		switch f := s.out.What(n); f.Op {
		case frame.Write, frame.Send, frame.Immediate:
			s.q.SQ.At(f.source).Failed = status
		}
	}
}
