package tcp

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

const (
	bulkMin   = 64 << 10 // of a request or an answer: it is split over the lanes
	ackFrames = 64       // that have come: they are acknowledged in the same pass
	ackBytes  = 2 << 20  // the same
)

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

// hasOutput tells whether there is something that could be sent, or acknowledged.
func (b *multiLane) hasOutput() bool {
	return b.unackedFrames() > 0 || b.hasFrames()
}

func (b *multiLane) hasFrames() bool {
	if b.q.hasFrames() || b.q.awaitingFirstFrame {
		return b.q.hasFrames()
	}
	if _, ok := b.out.Again(0); ok || b.failover.Due() {
		return true
	}
	for _, l := range b.conns {
		if !l.greeted || !l.partial.Empty() || l.link.Pending() > 0 {
			return true
		}
	}
	return false
}

// unackedFrames is how many frames have come that are not acknowledged.
func (b *multiLane) unackedFrames() uint64 { return b.in.Next() - b.ackSent }

// retryBlocked gives lanes that had no room another chance.
func (b *multiLane) retryBlocked() {
	for i := 0; i < len(b.conns); i++ {
		if l := b.conns[i]; l.blocked {
			l.blocked = false
			if b.fill(l, false); !b.q.open {
				return
			}
			if !l.blocked && l.fd >= 0 {
				b.q.rewatch(&l.conn)
			}
		}
	}
	b.q.blocked = b.pick() == nil
}

// transmit sends what there is, over whatever lane has room, until there is nothing or no lane has.
func (b *multiLane) transmit() {
	q := b.q
	if q.awaitingFirstFrame {
		q.scq.out.Reset(frame.HeaderSizeWith(q.checked))
		if q.frame(&q.scq.out); q.open {
			b.skipped()
		}
		return
	}
	b.sendReady()
	if q.open && b.failover.Due() {
		b.sendLost()
	}
	for q.open {
		l := b.pick()
		if q.blocked = l == nil; q.blocked || !b.fill(l, true) {
			break
		}
	}
	if q.open && b.unackedFrames() > 0 {
		b.acknowledge()
	}
}

// sendReady sends Ready on lanes that this side has made.
func (b *multiLane) sendReady() {
	for i := 0; i < len(b.conns); i++ {
		if l := b.conns[i]; !l.greeted {
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
func (b *multiLane) pick() *laneConn {
	designated := b.designated()
	if designated != nil && designated.ready() {
		return designated
	}
	if len(b.conns) > 1 && b.bulk(designated == nil) {
		for i := len(b.conns) - 1; i >= 0; i-- {
			if l := b.conns[i]; l.ready() {
				return l
			}
		}
		return nil
	}
	for _, l := range b.conns {
		if l.ready() {
			return l
		}
	}
	return nil
}

func (l *laneConn) ready() bool { return !l.blocked && !l.awaitingFirstFrame }

// designated is the lane that the peer has designated for the next answer (R1); nil if there is no answer, or
// it takes any lane: none was designated, or one that is not there, or no longer.
func (b *multiLane) designated() *laneConn {
	q := b.q
	if q.at.response == q.responses.Tail {
		return nil
	}
	lane := q.responses.At(q.at.response).lane
	if lane == transport.AnyLane {
		return nil
	}
	return b.find(uint16(lane - 1))
}

// frameFor makes the next frame that may go over a lane.
func (b *multiLane) frameFor(l *laneConn, o *frame.Batch) bool {
	designated := b.designated()
	b.q.answerElsewhere = designated != nil && designated != l
	return b.q.frame(o)
}

// bulk tells whether what goes out next is a part of much; an answer may have to wait.
func (b *multiLane) bulk(answers bool) bool {
	q := b.q
	if _, ok := b.out.Again(1); ok {
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

// fill sends over one lane, which has room, as much as goes into one write. It tells whether to go on: there
// may be more, and lanes with room for it.
func (b *multiLane) fill(l *laneConn, fresh bool) (more bool) {
	q, o := b.q, &b.q.scq.out
	if l.link.Pending() > 0 {
		return b.flush(l)
	}
	o.Reset(l.in.size)
	b.numbers = b.numbers[:0]
	if !l.partial.Empty() {
		if !b.partialAlive(l) {
			return false
		}
		l.partial.AppendTo(o)
	}
	w := laneWrite{rest: o.Size(), first: b.out.Next(), before: q.at, place: b.at}
	if fresh && !b.gather(l, &w) {
		return false // a local error has ended the queue pair
	}
	if o.Empty() {
		b.skipped()
		return false
	}
	o.Seal()
	n, err := l.link.Write(o)
	if err != nil {
		b.takeBack(&w)
		l.readRest()
		b.lose(l, err)
		return q.open
	}
	b.onWritten(l, max(n, 0), &w)
	return true
}

// gather puts frames into the batch: those that go again, then those that go for the first time.
func (b *multiLane) gather(l *laneConn, w *laneWrite) bool {
	q, o := b.q, &b.q.scq.out
	limit := l.link.MaxWrite()
	for o.Size() < limit && !o.Full() {
		n, ok := b.out.Again(w.again)
		if !ok {
			break
		}
		s := b.out.What(n)
		if !b.remake(o, s) {
			if !q.open {
				return false
			}
			break
		}
		b.stamp(o, l, n, s.ref)
		w.again++
	}
	for o.Size() < limit && !o.Full() && b.out.Room() && b.frameFor(l, o) {
		n := b.out.Add(l.number, segment{})
		b.note(o, n)
		b.stamp(o, l, n, b.out.What(n).ref)
	}
	return q.open
}

// takeBack undoes what gather took for the first time: nothing of it has left.
func (b *multiLane) takeBack(w *laneWrite) {
	b.out.TakeBack(w.first)
	b.q.at, b.at = w.before, w.place
}

// onWritten notes that the lane has taken n bytes of the batch.
func (b *multiLane) onWritten(l *laneConn, n int, w *laneWrite) {
	o := &b.q.scq.out
	l.keepalive.Sent = l.keepalive.Sent || n > 0
	sent := l.keepPartial(n, w.rest)
	if sent > 0 {
		b.onAckSent()
	}
	again := min(sent, w.again)
	for _, number := range b.numbers[:again] {
		b.stats.Resent += uint64(b.out.What(number).Length)
	}
	b.out.Sent(again, l.number)
	switch {
	case n == o.Size():
		b.skipped()
	case sent <= w.again:
		b.takeBack(w)
	default:
		last := b.numbers[sent-1]
		s := b.out.What(last)
		b.out.TakeBack(last + 1)
		b.q.at, b.at = s.after, s.place
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
			l.partialNumber = l.b.numbers[i]
		}
		begin = end
		sent++
	}
	return sent
}

// note fills in what the frame made last, which has the number n, can be made of again.
func (b *multiLane) note(o *frame.Batch, n uint64) {
	q := b.q
	s := b.out.What(n)
	h, _ := frame.Parse(o.Last()) // ours
	s.Header = h
	switch h.Op {
	case frame.ReadWrite:
		s.source, s.off = q.at.response, q.at.responseOff-h.Length
		if q.at.responseOff == 0 {
			s.source = q.at.response - 1
			s.off = q.responses.At(s.source).total - h.Length
		}
		s.ref = q.responses.At(s.source).number
	case frame.AtomicDone, frame.Close:
	default:
		s.source, s.off = q.at.next, q.at.off-h.Length
		if q.at.off == 0 {
			s.source = q.at.next - 1
			s.off = q.SQ.At(s.source).Total - h.Length
		}
		switch h.Op {
		case frame.Write:
			if s.off == 0 {
				b.at.first = n
			}
			s.ref = b.at.first
		case frame.ReadRequest, frame.Atomic:
			s.ref = b.at.asks
			b.at.asks++
			q.SQ.At(s.source).Begun = 0
		}
	}
	s.after, s.place = q.at, b.at
}

// stamp finishes the frame made last.
func (b *multiLane) stamp(o *frame.Batch, l *laneConn, n, ref uint64) {
	frame.PutWords(o.Last(), l.number, n, b.in.Next(), ref)
	if b.q.checked {
		o.Sum()
	}
	o.Finish()
	b.numbers = append(b.numbers, n)
}

// remake makes a frame once more.
func (b *multiLane) remake(o *frame.Batch, s *segment) bool {
	q := b.q
	switch s.Op {
	case frame.Write, frame.Send:
		if s.Length == 0 {
			o.Begin(s.Header, 0)
			return true
		}
		return q.payload(o, s.Header, q.SQ.At(s.source), s.off, s.Length)
	case frame.ReadRequest:
		q.readRequest(o, q.SQ.At(s.source))
	case frame.Atomic:
		q.atomicFrame(o, q.SQ.At(s.source))
	case frame.ReadWrite:
		return b.remakeResponse(o, s)
	default:
		o.Begin(s.Header, 0)
	}
	return true
}

func (b *multiLane) remakeResponse(o *frame.Batch, s *segment) bool {
	q := b.q
	a := q.responses.At(s.source)
	src, off := verbs.SegmentAt(a.src[:a.nsrc], s.off)
	r, err := q.PD.Find(&q.Windows, src.Key, transport.RemoteRead, src.Offset+off, uint64(s.Length))
	if err != nil {
		if o.Empty() {
			q.refuseRead(a, err)
		}
		return false
	}
	if (r.View != nil || q.copies(r)) && s.Length > o.MaxCopy() {
		return false // the next write has room
	}
	at := int(src.Offset + off)
	switch {
	case r.View != nil:
		r.View.Gather(at, o.Begin(s.Header, s.Length))
		q.answered.Copied += uint64(s.Length)
	case q.copies(r):
		copy(o.Begin(s.Header, s.Length), r.Mem[at:])
		q.answered.Copied += uint64(s.Length)
	default:
		o.Begin(s.Header, 0)
		o.Direct(r.Mem[at:][:s.Length])
	}
	return true
}

// skipped notes the requests of no bytes that the cursor has passed: they are done when all before them is
// acknowledged.
func (b *multiLane) skipped() {
	if b.out.First() == b.out.Next() {
		b.q.onWritten(b.q.at)
	} else {
		b.out.What(b.out.Next() - 1).after = b.q.at
	}
}

// partialAlive tells whether the memory that the rest of a frame lies in is still registered. If not, it ends
// the queue pair.
func (b *multiLane) partialAlive(l *laneConn) bool {
	if !l.partial.Gathers() {
		return true
	}
	q := b.q
	s := b.out.What(l.partialNumber)
	if s.Op != frame.ReadWrite {
		w := q.SQ.At(s.source)
		if !w.Alive() {
			q.regionGone(w)
			return false
		}
		return true
	}
	return q.responseAlive(s.source, s.off)
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
func (b *multiLane) flush(l *laneConn) bool {
	progress, err := l.link.Flush()
	if err != nil {
		b.lose(l, err)
		return true
	}
	l.keepalive.Sent = l.keepalive.Sent || progress
	if l.link.Pending() > 0 {
		l.block()
	}
	return true
}

// sendUnnumbered sends a frame that does not count, after what the lane still has to finish. It tells whether
// the frame goes out: not where the socket is full.
func (l *laneConn) sendUnnumbered(h frame.Header, payload []byte) bool {
	b := l.b
	if !l.ready() || !l.partial.Empty() || l.fd < 0 {
		return false
	}
	b.frame = frame.AppendOverLane(b.frame[:0], h, l.number, 0, b.in.Next(), 0, payload, b.q.checked)
	n, err := l.link.WriteFrame(b.frame)
	if err != nil {
		b.lose(l, err)
		return false
	}
	l.keepalive.Sent = l.keepalive.Sent || n > 0
	l.partialNumber = 0
	l.keepRest(b.frame, n)
	if l.link.Pending() > 0 {
		l.block()
	}
	b.onAckSent()
	return true
}

func (b *multiLane) onAckSent() { b.ackSent, b.unackedBytes, b.ackUrgent = b.in.Next(), 0, false }

// idleLane is a lane that can say something at once.
func (b *multiLane) idleLane() *laneConn {
	for _, l := range b.conns {
		if l.ready() && l.greeted && l.partial.Empty() {
			return l
		}
	}
	return nil
}

// acknowledge tells the peer what has arrived, where no frame has done so.
func (b *multiLane) acknowledge() {
	if l := b.idleLane(); l != nil {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}

// sendAlive tells the peer on a lane that this end lives. Where the socket is full there is no need.
func (l *laneConn) sendAlive() {
	if l.greeted {
		l.sendUnnumbered(frame.Header{Op: frame.Alive, Flags: frame.Last}, nil)
	}
}
