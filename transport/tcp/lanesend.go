package tcp

import (
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

const (
	bulkMin   = 64 << 10 // of a request or an answer: it is split over the lanes
	ackFrames = 64       // that have come: they are acknowledged in the same pass
	ackBytes  = 2 << 20  // the same
)

// place is, over lanes, a place in the sequence of frames.
type place struct {
	first uint64 // the number of the first frame of the Write that the cursor stands in
	asks  uint64 // Reads and Atomics that are behind and had a frame
}

// segment is what a frame that counts is made of. It is made again from there, not from a copy: what a request names is its poster's
// only when the frame is acknowledged.
type segment struct {
	header
	ref    uint64
	source uint32 // the request, or the answer, by its place in its queue
	off    int    // and of which byte on
	behind cursor // after it
	place  place
}

// item is a frame of the present write.
type item struct {
	end int // bytes from the beginning
	n   uint64
}

// hasOutput tells whether there is something that could be sent, or acknowledged.
func (b *bundle) hasOutput() bool {
	return b.owes() > 0 || b.hasFrames()
}

func (b *bundle) hasFrames() bool {
	q := b.q
	if q.quiet {
		return q.at.next != q.sq.tail && q.sq.at(q.at.next).here()
	}
	if b.losses.Due() || q.at.next != q.sq.tail || q.at.answer != q.answers.tail || q.closing == closeDue && !q.at.ended {
		return true
	}
	if _, ok := b.out.Again(0); ok {
		return true
	}
	for _, l := range b.links {
		if !l.greeted || !l.carry.empty() || l.secure != nil && l.secure.pending() {
			return true
		}
	}
	return false
}

// owes is how many frames have come that are not acknowledged.
func (b *bundle) owes() uint64 { return b.in.Next() - b.told }

// retry gives lanes that had no room another chance.
func (b *bundle) retry() {
	for i := 0; i < len(b.links); i++ {
		if l := b.links[i]; l.blocked {
			l.blocked = false
			if b.fill(l, false); b.q.fd < 0 {
				return
			}
			if !l.blocked && l.fd >= 0 {
				l.rewatch()
			}
		}
	}
	b.q.blocked = b.pick() == nil
}

// transmit sends what there is, over whatever lane has room, until there is nothing or no lane has.
func (b *bundle) transmit() {
	q := b.q
	if q.quiet {
		q.scq.out.reset(q.checked)
		if q.frame(&q.scq.out); q.fd >= 0 {
			b.skipped()
		}
		return
	}
	b.greet()
	if q.fd >= 0 && b.losses.Due() {
		b.tellLosses()
	}
	for q.fd >= 0 {
		l := b.pick()
		if q.blocked = l == nil; q.blocked || !b.fill(l, true) {
			break
		}
	}
	if q.fd >= 0 && b.owes() > 0 {
		b.acknowledge()
	}
}

// greet sends Ready on lanes that this side has made.
func (b *bundle) greet() {
	for i := 0; i < len(b.links); i++ {
		if l := b.links[i]; !l.greeted {
			l.greeted = true
			l.say(header{op: opReady, flags: flagLast}, nil)
		}
	}
}

// pick chooses the lane that carries what goes out next: small messages take the first that has room, parts of large ones the last. So a lane is full
// before the next one is used, which costs less than to look at all of them; what a lane takes is little more than it can send (laneUnsent), so that
// all are full when there is more than one can carry; and small messages do not queue behind large ones before that.
func (b *bundle) pick() *link {
	if len(b.links) > 1 && b.bulk() {
		for i := len(b.links) - 1; i >= 0; i-- {
			if l := b.links[i]; l.ready() {
				return l
			}
		}
		return nil
	}
	for _, l := range b.links {
		if l.ready() {
			return l
		}
	}
	return nil
}

func (l *link) ready() bool { return !l.blocked && !l.quiet }

// bulk tells whether what goes out next is a part of much.
func (b *bundle) bulk() bool {
	q := b.q
	if _, ok := b.out.Again(1); ok {
		return true
	}
	if q.at.next != q.sq.tail {
		if w := q.sq.at(q.at.next); w.total-q.at.off >= bulkMin && !w.asks() {
			return true
		}
	}
	if q.at.answer != q.answers.tail {
		return q.answers.at(q.at.answer).total-q.at.aoff >= bulkMin
	}
	return false
}

// fill sends over one lane, which has room, as much as goes into one write. It tells whether to go on: there may be more, and lanes with
// room for it.
func (b *bundle) fill(l *link, fresh bool) (more bool) {
	q, o := b.q, &b.q.scq.out
	if l.secure != nil && l.secure.pending() {
		return b.flush(l)
	}
	most := writeMost
	if l.secure != nil {
		most = sealMost
	}
	o.reset(q.checked)
	o.header += laneWords
	if !l.carry.empty() {
		if !b.carryAlive(l) {
			return false
		}
		l.carry.gather(o)
	}
	carried := o.bytes
	b.items = b.items[:0]
	first := b.out.Next() // of those that go for the first time
	for i := 0; fresh && o.bytes < most && !o.full(); i++ {
		n, ok := b.out.Again(i)
		if !ok {
			break
		}
		s := b.out.What(n)
		if !b.remake(o, s) {
			if q.fd < 0 {
				return false
			}
			break
		}
		b.stamp(o, l, n, s.ref)
	}
	again := len(b.items)
	before, placeBefore := q.at, b.at
	for fresh && o.bytes < most && !o.full() && b.out.Room() && q.frame(o) {
		n := b.out.Add(l.number, segment{})
		b.note(o, n)
		b.stamp(o, l, n, b.out.What(n).ref)
	}
	if q.fd < 0 {
		return false // a local error has ended the queue pair
	}
	if o.bytes == 0 {
		b.skipped()
		return false
	}
	o.seal()
	n, err := l.write(o)
	if err != nil {
		b.out.TakeBack(first)
		q.at, b.at = before, placeBefore
		l.lastWords()
		b.lose(l, err)
		return q.fd >= 0
	}
	n = max(n, 0)
	l.pulse.said = l.pulse.said || n > 0
	sent := 0
	switch {
	case n < carried:
		l.carry.drop(n)
	default:
		l.carry.reset()
		l.partial = 0
		begin := carried
		for sent < len(b.items) && n > begin {
			i := b.items[sent]
			if n < i.end {
				l.carry.keep(o, n, i.end)
				l.partial = i.n
			}
			begin = i.end
			sent++
		}
	}
	if sent > 0 {
		b.noteTold()
	}
	for _, i := range b.items[:min(sent, again)] {
		b.stats.Resent += uint64(b.out.What(i.n).length)
	}
	b.out.Sent(min(sent, again), l.number)
	if n == o.bytes {
		b.skipped()
		return true
	}
	if sent <= again {
		b.out.TakeBack(first)
		q.at, b.at = before, placeBefore
	} else {
		s := b.out.What(b.items[sent-1].n)
		b.out.TakeBack(b.items[sent-1].n + 1)
		q.at, b.at = s.behind, s.place
	}
	if l.secure == nil || l.secure.pending() {
		l.block()
	}
	return true
}

// note fills in what the frame made last, which has the number n, can be made of again.
func (b *bundle) note(o *outbox, n uint64) {
	q := b.q
	s := b.out.What(n)
	h, _ := parseHeader(o.buf[o.begun:]) // ours
	s.header = h
	switch h.op {
	case opReadWrite:
		s.source, s.off = q.at.answer, q.at.aoff-h.length
		s.ref = q.answers.at(s.source).number
	case opReadDone, opAtomicDone, opClose:
	default:
		s.source, s.off = q.at.next, q.at.off-h.length
		if q.at.off == 0 {
			s.source = q.at.next - 1
			s.off = q.sq.at(s.source).total - h.length
		}
		switch h.op {
		case opWrite:
			if s.off == 0 {
				b.at.first = n
			}
			s.ref = b.at.first
		case opReadRequest, opAtomic:
			s.ref = b.at.asks
			b.at.asks++
			q.sq.at(s.source).begun = 0
		}
	}
	s.behind, s.place = q.at, b.at
}

// stamp finishes the frame made last.
func (b *bundle) stamp(o *outbox, l *link, n, ref uint64) {
	putWords(o.buf[o.begun:], l.number, n, b.in.Next(), ref)
	if b.q.checked {
		o.sum()
	}
	b.items = append(b.items, item{o.bytes, n})
}

// remake makes a frame once more.
func (b *bundle) remake(o *outbox, s *segment) bool {
	q := b.q
	switch s.op {
	case opWrite, opSend:
		if s.length == 0 {
			o.begin(s.header, 0)
			return true
		}
		return q.payload(o, s.header, q.sq.at(s.source), s.off, s.length)
	case opReadRequest:
		q.readRequest(o, q.sq.at(s.source))
	case opAtomic:
		q.atomicFrame(o, q.sq.at(s.source))
	case opReadWrite:
		return b.remakeAnswer(o, s)
	default:
		o.begin(s.header, 0)
	}
	return true
}

func (b *bundle) remakeAnswer(o *outbox, s *segment) bool {
	q := b.q
	if q.checked && s.length > outSize-o.used-laneHeaderSize-2*sumSize {
		return false // the next write has room
	}
	a := q.answers.at(s.source)
	src, off := segmentAt(a.src[:a.nsrc], s.off)
	r, err := q.dev.regions.find(q, src.Key, transport.RemoteRead, src.Offset+off, uint64(s.length))
	if err != nil {
		if o.bytes == 0 {
			q.refuseRead(a, err)
		}
		return false
	}
	mem := r.mem[src.Offset+off:][:s.length]
	if s.length <= copyMax || q.checked {
		copy(o.begin(s.header, s.length), mem)
	} else {
		o.begin(s.header, 0)
		o.direct(mem)
	}
	return true
}

// skipped notes the requests of no bytes that the cursor has passed: they are done when all before them is acknowledged.
func (b *bundle) skipped() {
	if b.out.First() == b.out.Next() {
		b.q.behind(b.q.at)
	} else {
		b.out.What(b.out.Next() - 1).behind = b.q.at
	}
}

// carryAlive tells whether the memory that the rest of a frame lies in is still registered. If not, it ends the queue pair.
func (b *bundle) carryAlive(l *link) bool {
	if l.carry.n == 0 {
		return true
	}
	q := b.q
	s := b.out.What(l.partial)
	if s.op != opReadWrite {
		w := q.sq.at(s.source)
		if !w.alive() {
			q.gone(w)
			return false
		}
		return true
	}
	a := q.answers.at(s.source)
	src, off := segmentAt(a.src[:a.nsrc], s.off)
	if _, err := q.dev.regions.find(q, src.Key, transport.RemoteRead, src.Offset+off, 0); err != nil {
		q.refuseRead(a, err)
		return false
	}
	return true
}

// write gives the lane's socket what the outbox holds: raw, as much as it takes; encrypted, all.
func (l *link) write(o *outbox) (int, error) {
	if l.secure == nil {
		return o.write(l.fd)
	}
	if err := l.secure.seal(o); err != nil {
		return 0, err
	}
	if _, err := l.secure.flush(); err != nil {
		return 0, err
	}
	if l.secure.pending() {
		l.block()
	}
	return o.bytes, nil
}

// lastWords reads what the peer sent before a lane broke that cannot be written to any more.
func (l *link) lastWords() {
	for range drainMost / stagingSize / readsAPass {
		if l.fd < 0 || !l.receive() {
			return
		}
	}
}

// flush gives the socket records that wait.
func (b *bundle) flush(l *link) bool {
	said, err := l.secure.flush()
	if err != nil {
		b.lose(l, err)
		return true
	}
	l.pulse.said = l.pulse.said || said
	if l.secure.pending() {
		l.block()
	}
	return true
}

func (l *link) block() {
	if !l.blocked {
		l.blocked = true
		l.rewatch()
	}
}

// rewatch has the pollers look for room exactly while that is wanted.
func (l *link) rewatch() {
	for _, c := range l.b.cqs {
		c.rewatchLane(l)
	}
}

// say sends a frame that does not count, behind what the lane still has to finish. It tells whether the frame goes out: not where the
// socket is full.
func (l *link) say(h header, payload []byte) bool {
	b := l.b
	if !l.ready() || !l.carry.empty() || l.fd < 0 {
		return false
	}
	b.frame = appendLaneFrame(b.frame[:0], h, l.number, 0, b.in.Next(), 0, payload, b.q.checked)
	frame := b.frame
	var n int
	var err error
	if l.secure != nil {
		if _, err = l.secure.tls.Write(frame); err == nil {
			b.flush(l)
			n = len(frame)
		}
	} else {
		n, err = sys.Write(l.fd, frame)
	}
	if err != nil {
		b.lose(l, err)
		return false
	}
	l.pulse.said = l.pulse.said || n > 0
	if n < len(frame) {
		l.carry.head = append(l.carry.head[:0], frame[max(n, 0):]...)
		l.partial = 0
		l.block()
	}
	b.noteTold()
	return true
}

func (b *bundle) noteTold() { b.told, b.fresh, b.urgent = b.in.Next(), 0, false }

// speaker is a lane that can say something at once.
func (b *bundle) speaker() *link {
	for _, l := range b.links {
		if l.ready() && l.greeted && l.carry.empty() {
			return l
		}
	}
	return nil
}

// acknowledge tells the peer what has arrived, where no frame has done so.
func (b *bundle) acknowledge() {
	if l := b.speaker(); l != nil {
		l.say(header{op: opAlive, flags: flagLast}, nil)
	}
}

// sayAlive tells the peer on a lane that this end lives. Where the socket is full there is no need.
func (l *link) sayAlive() {
	if l.greeted {
		l.say(header{op: opAlive, flags: flagLast}, nil)
	}
}

// tellLosses tells the peer which lanes are closed here, and what has arrived.
func (b *bundle) tellLosses() {
	l := b.speaker()
	if l == nil {
		return
	}
	t := b.losses.Tell(nil)
	payload := appendLost(nil, t, b.in.Next(), b.in.Ranges(nil))
	if !l.say(header{op: opLost, flags: flagLast}, payload) {
		b.losses.Untold()
	}
}

// tell says why the connection is cut, as the last frame of the sequence, if a lane takes it at once.
func (b *bundle) tell(h header, text []byte) {
	for _, l := range b.links {
		if l.quiet || l.blocked || !l.carry.empty() {
			continue
		}
		var frame []byte
		if !l.greeted {
			frame = appendLaneFrame(frame, header{op: opReady, flags: flagLast}, l.number, 0, b.in.Next(), 0, nil, b.q.checked)
		}
		frame = appendLaneFrame(frame, h, l.number, b.out.Next(), b.in.Next(), b.fault.n, text, b.q.checked)
		if l.secure != nil {
			l.secure.tell(frame)
		} else {
			sys.Write(l.fd, frame)
		}
		break
	}
	sink := make([]byte, stagingSize)
	for _, l := range b.links {
		drain(l.fd, sink)
	}
}
