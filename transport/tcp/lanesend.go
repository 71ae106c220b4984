package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
	"github.com/weft-mpi/weft/transport/tcp/internal/sequence"
)

const (
	bulkMin   = 64 << 10 // of a request or an answer: it is split over the lanes
	ackFrames = 64       // that have come: they are acknowledged in the same pass
	ackBytes  = 2 << 20  // the same
)

// laneSender is the frames that a queue pair over lanes sends: their numbers, which lane carries each, and
// what has to go again.
type laneSender struct {
	m       *multiLane
	q       *qp
	out     *sequence.Outbound[segment]
	at      position // what the cursor of the queue pair does not know of the place
	numbers []uint64 // of the frames of the present write
	frame   []byte   // one that has no number
}

func (s *laneSender) init(m *multiLane) {
	s.m, s.q, s.out = m, m.q, sequence.NewOutbound[segment]()
}

// position is a position in the sequence of frames, over lanes.
type position struct {
	first uint64 // the number of the first frame of the Write that the cursor stands in
	asks  uint64 // Reads and Atomics that have been passed and had a frame
}

// segment is what a frame that counts is made of. It is made again from there, not from a copy: what a
// request names is its poster's only when the frame is acknowledged.
type segment struct {
	frame.Header
	ref    uint64
	source uint32 // the request, or the answer, by its place in its queue
	off    int    // and of which byte on
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

// retryBlocked gives lanes that had no room another chance.
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

// transmit sends frames over lanes with room, until there are no frames or no lane has room.
func (s *laneSender) transmit() {
	q := s.q
	if q.awaitingFirstFrame {
		q.scq.out.Reset(frame.HeaderSizeWith(q.checked))
		if q.frame(&q.scq.out); q.open {
			s.skipped()
		}
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

// sendReady sends Ready on lanes that this side has made.
func (s *laneSender) sendReady() {
	for i := 0; i < len(s.m.conns); i++ {
		if l := s.m.conns[i]; !l.greeted {
			l.greeted = true
			l.sendUnnumbered(frame.Header{Op: frame.Ready, Flags: frame.Last}, nil)
		}
	}
}

// pick chooses the lane that carries what goes out next: small messages take the first that has room, parts
// of large ones the last. So a lane is full before the next one is used, which costs less than to look at all
// of them; what a lane takes is little more than it can send (laneUnsent), so that all are full when there is
// more than one can carry; and small messages do not queue after large ones before that. An answer goes over
// the lane that was designated for it, and waits while that has no room.
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

// designated is the lane that the peer has designated for the next answer (R1); nil if there is no answer, or
// it takes any lane: none was designated, or one that is not there, or no longer.
func (s *laneSender) designated() *laneConn {
	q := s.q
	if q.at.response == q.responses.Tail {
		return nil
	}
	lane := q.responses.At(q.at.response).lane
	if lane == transport.AnyLane {
		return nil
	}
	return s.m.find(uint16(lane - 1))
}

// frameFor makes the next frame that may go over a lane.
func (s *laneSender) frameFor(l *laneConn, o *frame.Batch) bool {
	designated := s.designated()
	s.q.answerElsewhere = designated != nil && designated != l
	return s.q.frame(o)
}

// bulk reports whether what goes out next is a part of much; an answer may have to wait.
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
	if answers && q.at.response != q.responses.Tail {
		return q.responses.At(q.at.response).total-q.at.responseOff >= bulkMin
	}
	return false
}

// laneWrite is what a lane is about to be given, and where the sequence stood before.
type laneWrite struct {
	rest   int    // bytes of a frame of which the lane has taken a part
	again  int    // frames that go again, before those that go for the first time
	first  uint64 // number of the first of these
	before cursor
	place  position
}

// fill sends over one lane, which has room, as much as goes into one write. It reports whether to go on:
// there may be more, and lanes with room for it.
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

// gather puts frames into the batch: those that go again, then those that go for the first time.
func (s *laneSender) gather(l *laneConn, w *laneWrite) bool {
	q, o := s.q, &s.q.scq.out
	limit := l.link.MaxWrite()
	for o.Size() < limit && !o.Full() {
		n, ok := s.out.Again(w.again)
		if !ok {
			break
		}
		seg := s.out.What(n)
		if !s.remake(o, seg) {
			if !q.open {
				return false
			}
			break
		}
		s.stamp(o, l, n, seg.ref)
		w.again++
	}
	for o.Size() < limit && !o.Full() && s.out.Room() && s.frameFor(l, o) {
		n := s.out.Add(l.number, segment{})
		s.note(o, n)
		s.stamp(o, l, n, s.out.What(n).ref)
	}
	return q.open
}

// takeBack undoes what gather took for the first time: nothing of it has left.
func (s *laneSender) takeBack(w *laneWrite) {
	s.out.TakeBack(w.first)
	s.q.at, s.at = w.before, w.place
}

// onWritten notes that the lane has taken n bytes of the batch.
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
		seg := s.out.What(last)
		s.out.TakeBack(last + 1)
		s.q.at, s.at = seg.after, seg.place
	}
	if n < o.Size() || l.link.Pending() > 0 {
		l.block()
	}
}

// keepPartial keeps the rest of the frame of which the lane has taken a part: n bytes of the batch have left,
// which begins with the rest of an earlier frame. It returns how many of the batch's own frames have left, if
// only in part.
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

// note fills in what the frame made last, which has the number n, can be made of again.
func (s *laneSender) note(o *frame.Batch, n uint64) {
	q := s.q
	seg := s.out.What(n)
	h, _ := frame.Parse(o.Last()) // ours
	seg.Header = h
	switch h.Op {
	case frame.ReadWrite:
		seg.source, seg.off = q.at.response, q.at.responseOff-h.Length
		if q.at.responseOff == 0 {
			seg.source = q.at.response - 1
			seg.off = q.responses.At(seg.source).total - h.Length
		}
		seg.ref = q.responses.At(seg.source).number
	case frame.AtomicDone, frame.Close:
	default:
		seg.source, seg.off = q.at.next, q.at.off-h.Length
		if q.at.off == 0 {
			seg.source = q.at.next - 1
			seg.off = q.SQ.At(seg.source).Total - h.Length
		}
		switch h.Op {
		case frame.Write:
			if seg.off == 0 {
				s.at.first = n
			}
			seg.ref = s.at.first
		case frame.ReadRequest, frame.Atomic:
			seg.ref = s.at.asks
			s.at.asks++
			q.SQ.At(seg.source).Begun = 0
		}
	}
	seg.after, seg.place = q.at, s.at
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

// remake makes a frame once more.
func (s *laneSender) remake(o *frame.Batch, seg *segment) bool {
	q := s.q
	switch seg.Op {
	case frame.Write, frame.Send:
		if seg.Length == 0 {
			o.Begin(seg.Header, 0)
			return true
		}
		return q.payload(o, seg.Header, q.SQ.At(seg.source), seg.off, seg.Length)
	case frame.ReadRequest:
		q.readRequest(o, q.SQ.At(seg.source))
	case frame.Atomic:
		q.atomicFrame(o, q.SQ.At(seg.source))
	case frame.ReadWrite:
		return s.remakeResponse(o, seg)
	default:
		o.Begin(seg.Header, 0)
	}
	return true
}

// remakeResponse makes a frame of an answer once more. No region is a view here: see Device.Query.
func (s *laneSender) remakeResponse(o *frame.Batch, seg *segment) bool {
	q := s.q
	a := q.responses.At(seg.source)
	src, off := verbs.SegmentAt(a.src[:a.nsrc], seg.off)
	r, err := q.PD.Find(&q.Windows, src.Key, transport.RemoteRead, src.Offset+off, uint64(seg.Length))
	if err != nil {
		if o.Empty() {
			q.refuseRead(a, err)
		}
		return false
	}
	at := int(src.Offset + off)
	if !q.copies(r) {
		o.Begin(seg.Header, 0)
		o.Direct(r.Mem[at:][:seg.Length])
		return true
	}
	if seg.Length > o.MaxCopy() {
		return false // the next write has room
	}
	copy(o.Begin(seg.Header, seg.Length), r.Mem[at:])
	q.answered.Copied += uint64(seg.Length)
	return true
}

// skipped notes the requests of no bytes that the cursor has passed: they are done when all before them is
// acknowledged.
func (s *laneSender) skipped() {
	if s.out.First() == s.out.Next() {
		s.q.onWritten(s.q.at)
	} else {
		s.out.What(s.out.Next() - 1).after = s.q.at
	}
}

// partialAlive reports whether the memory that the rest of a frame lies in is still registered. If not, it
// ends the queue pair.
func (s *laneSender) partialAlive(l *laneConn) bool {
	if !l.partial.Gathers() {
		return true
	}
	q := s.q
	seg := s.out.What(l.partialNumber)
	if seg.Op != frame.ReadWrite {
		w := q.SQ.At(seg.source)
		if !w.Alive() {
			q.regionGone(w)
			return false
		}
		return true
	}
	return q.responseAlive(seg.source, seg.off)
}

// readRest reads what the peer sent before a lane broke that cannot be written to any more.
func (l *laneConn) readRest() {
	for range readRestPasses {
		if l.fd < 0 || !l.read() {
			return
		}
	}
}

// flush gives the socket what the link has taken before.
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

// sendUnnumbered sends a frame that does not count, after what the lane still has to finish. It reports
// whether the frame goes out: not where the socket is full.
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

// idleLane is a lane that can say something at once.
func (s *laneSender) idleLane() *laneConn {
	for _, l := range s.m.conns {
		if l.ready() && l.greeted && l.partial.Empty() {
			return l
		}
	}
	return nil
}

// acknowledge tells the peer what has arrived, where no frame has done so.
func (s *laneSender) acknowledge() {
	if l := s.idleLane(); l != nil {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}

// sendAlive tells the peer on a lane that this end lives. Where the socket is full there is no need.
func (l *laneConn) sendAlive() {
	if l.greeted {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}

// refused notes how the request ends whose frame, of number n, the peer has found to be wrong.
func (s *laneSender) refused(n uint64, status transport.Status) {
	if n >= s.out.First() && n < s.out.Next() {
		switch seg := s.out.What(n); seg.Op {
		case frame.Write, frame.Send, frame.Immediate, frame.Invalidate:
			s.q.SQ.At(seg.source).Failed = status
		}
	}
}
