package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/lane"
)

// arriving is the frame that a lane is receiving.
type arriving struct {
	raw    [laneHeaderSize + sumSize]byte
	have   int // bytes of raw: of a header, or of the CRC behind a payload
	size   int // bytes of a header, with its CRC if the queue pair has them
	inside bool
	laneHeader
	left int   // payload bytes that have not come
	drop bool  // the payload is not looked at: it has come before, or is behind what is wrong
	bad  error // what is wrong with it, told when everything before it has been

	r    *region // tagged: where it goes
	at   int
	asks uint32 // ReadWrite: the Read that asked for it
	recv uint32 // untagged: the posted Recv
	off  int    // and the place in it

	last [tailSize]byte // what has come of the last bytes of a Write
	held int            // of last

	control []byte // payload that goes to no region
	sum     uint32 // CRC of the payload so far, if the queue pair has them
}

// arrived are the particulars of what fills a posted Recv, until everything before it is there (H2).
type arrived struct {
	begun int // bytes of frames that have begun to come
	got   int // bytes placed, of frames that have come whole
	bytes int // of the whole message, once its last frame is there
	op    op  // of the last frame
	flags uint8
	word  uint64 // the immediate, or the key to be invalidated
}

// heldTail are the last bytes of a Write that has not come whole.
type heldTail struct {
	r     *region
	key   transport.Key
	at, n int
	bytes [tailSize]byte
}

// fault is what is wrong with a frame. It ends the queue pair when everything before the frame has been told.
type fault struct {
	n   uint64 // 0: none
	err error
}

// ending is a Terminate of the peer.
type ending struct {
	laneHeader
	control []byte
}

// What has to be carried out exactly in its place among what the peer's frames complete.
const (
	endInvalidate = iota + 1
	endClose
	endTerminate
)

// receive places what a lane has brought, if it has brought anything.
func (l *link) receive() (came bool) {
	q := l.b.q
	staging := q.rcq.staging
	for turn := 0; l.fd >= 0; turn++ {
		if l.secure == nil && turn == readsAPass {
			return came
		}
		dst := l.direct()
		asked, n, err := l.read(dst, staging, turn >= readsAPass)
		switch {
		case err != nil:
			l.b.lose(l, err)
			return true
		case n < 0:
			return came
		case n == 0:
			l.b.lose(l, errEnded)
			return true
		}
		l.pulse.heard, l.b.pulse.heard = true, true
		l.b.fresh += n
		came = true
		placed := min(n, len(dst))
		if placed > 0 {
			if q.checked {
				l.in.sum = crc32.Update(l.in.sum, castagnoli, dst[:placed])
			}
			l.in.left -= placed
			l.in.at += placed
			l.in.off += placed
		}
		if n > placed || l.in.left == 0 {
			if err := l.parse(staging[:n-placed]); err != nil {
				l.failed(err)
				return true
			}
		}
		if n < asked && l.secure == nil {
			return true // nothing is left in the socket
		}
	}
	return came
}

// read is one read: into dst, and what is behind it into staging. -1 stands for nothing yet, 0 for the end.
func (l *link) read(dst, staging []byte, dry bool) (asked, n int, err error) {
	if s := l.secure; s != nil {
		s.dry = dry
		into := dst
		if dst == nil {
			into = staging
		}
		n, err = s.read(into)
		l.pulse.heard, l.b.pulse.heard = l.pulse.heard || s.heard, l.b.pulse.heard || s.heard
		s.dry, s.heard = false, false
		return len(into), n, err
	}
	if dst == nil {
		n, err = sys.Read(l.fd, staging)
		return len(staging), n, err
	}
	v := [2]sys.Iovec{sys.Vec(dst), sys.Vec(staging[:behindSize])}
	n, err = sys.Readv(l.fd, v[:])
	return len(dst) + behindSize, n, err
}

// direct is the memory that the rest of the present frame may be read into without a copy. The last bytes of a Write come last.
func (l *link) direct() []byte {
	i := &l.in
	if !i.inside || i.left < directMin || i.drop || i.bad != nil {
		return nil
	}
	switch i.op {
	case opWrite:
		if i.r.Key() != transport.Key(i.a) || l.b.q.checked {
			return nil
		}
		return i.r.mem[i.at : i.at+i.left-tailSize]
	case opReadWrite:
		if i.r.Key() != transport.Key(i.a) {
			return nil
		}
		return i.r.mem[i.at : i.at+i.left-tailSize]
	case opSend:
		e := l.b.q.rq.at(i.recv)
		p, at, k := span(e.local, i.off, i.left-tailSize)
		if p == nil || !p.alive() {
			return nil
		}
		return p.r.mem[at : at+k]
	}
	return nil
}

// parse takes bytes off the lane.
func (l *link) parse(b []byte) error {
	i := &l.in
	for {
		if !i.inside {
			n := copy(i.raw[i.have:i.size], b)
			i.have += n
			b = b[n:]
			if i.have < i.size {
				return nil
			}
			i.have = 0
			if err := l.begin(i.raw[:]); err != nil {
				return err
			}
		}
		if n := min(len(b), i.left); n > 0 {
			l.place(b[:n])
			b = b[n:]
		}
		if i.left > 0 {
			return nil
		}
		if l.b.q.checked && i.length > 0 {
			n := copy(i.raw[i.have:sumSize], b)
			i.have += n
			b = b[n:]
			if i.have < sumSize {
				return nil
			}
			i.have = 0
			if err := checkSum(i.raw[:sumSize], i.sum, i.op, i.length); err != nil {
				return err
			}
		}
		i.inside = false
		if err := l.end(); err != nil {
			return err
		}
		if len(b) == 0 || l.fd < 0 {
			return nil
		}
	}
}

// begin takes a frame's header and checks what can be checked before its payload. What has come before is dropped here, before any key of
// it is looked at.
func (l *link) begin(raw []byte) error {
	i, b := &l.in, l.b
	q := b.q
	if q.checked {
		if err := checkHeader(raw, laneHeaderSize); err != nil {
			return err
		}
		i.sum = 0
	}
	h, err := parseLaneHeader(raw, l.number)
	if err != nil {
		return err
	}
	i.laneHeader, i.left, i.inside = h, h.length, true
	i.drop, i.bad, i.r, i.held, i.control = false, nil, nil, 0, i.control[:0]
	if l.quiet {
		l.quiet, q.quiet = false, false // whatever frame it is, the peer is in RDMA mode
		if h.op != opReady {
			return fmt.Errorf("%w: %v where Ready must come first", transport.ErrProtocol, h.op)
		}
	} else if h.op == opReady {
		return fmt.Errorf("%w: Ready a second time, or from who was called", transport.ErrProtocol)
	}
	if err := b.acked(h.ack); err != nil {
		return err
	}
	if q.fd < 0 || h.number == 0 {
		i.drop = q.fd < 0
		return nil
	}
	fresh, err := b.in.Fresh(h.number)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if !fresh {
		b.stats.Duplicates++
	}
	if i.drop = !fresh || b.fault.n != 0 && h.number >= b.fault.n; i.drop {
		return nil
	}
	if q.peerEnd && h.op != opTerminate && h.op != opReadWrite && h.op != opReadDone && h.op != opAtomicDone {
		return fmt.Errorf("%w: %v behind Close", transport.ErrProtocol, h.op)
	}
	switch h.op {
	case opWrite:
		i.r, err = q.dev.regions.find(q, transport.Key(h.a), transport.RemoteWrite, h.b, uint64(h.length))
		if err != nil {
			i.bad = &violation{code: terminateAccess, err: fmt.Errorf("Write from the peer: %w", err)}
		} else if h.ref == 0 || h.ref > h.number {
			return fmt.Errorf("%w: frame %d of a Write that begins with %d", transport.ErrProtocol, h.number, h.ref)
		}
		i.at = int(h.b)
	case opReadWrite:
		i.bad = l.beginReadWrite()
	case opSend, opImmediate, opInvalidate:
		i.bad = l.beginMessage()
	}
	return nil
}

// beginMessage finds the posted Recv that a message uses, and checks what can be checked of it now.
func (l *link) beginMessage() error {
	i, q := &l.in, l.b.q
	ahead := i.a - q.recvMsn
	if ahead >= uint64(q.rq.tail-q.rq.head) {
		return &violation{code: terminateNoRecv, err: fmt.Errorf("%w: a message of the peer found no Recv posted", transport.ErrProtocol)}
	}
	i.recv = q.rq.head + uint32(ahead)
	if i.op != opSend {
		return nil
	}
	if e := q.rq.at(i.recv); i.b > uint64(e.total) || i.length > e.total-int(i.b) {
		return &violation{code: terminateTooLong, status: transport.StatusLocalLength,
			err: fmt.Errorf("%w: a message of the peer is longer than the posted Recv of %d bytes", transport.ErrProtocol, e.total)}
	}
	i.off = int(i.b)
	q.lanes.recv(i.a).begun += i.length
	return nil
}

// asking finds our Read or Atomic of a number that is under way, and its place in the queue.
func (b *bundle) asking(number uint64) (*wqe, uint32) {
	q := b.q
	for k := q.sq.head; k != q.at.next; k++ {
		if w := q.sq.at(k); w.asks() && w.number == number && !w.done {
			return w, k
		}
	}
	return nil, 0
}

// forget takes back what the frame that a lane was receiving has begun: it comes again.
func (l *link) forget() {
	i, q := &l.in, l.b.q
	if !i.inside || i.number == 0 || i.drop || i.bad != nil {
		return
	}
	switch i.op {
	case opSend:
		l.b.recv(i.a).begun -= i.length
	case opReadWrite:
		q.sq.at(i.asks).begun -= i.length
	}
}

// beginReadWrite checks a Write that one of our Reads has asked for: nothing outside the destinations that it names is ever written (R6).
func (l *link) beginReadWrite() error {
	i := &l.in
	w, at := l.b.asking(i.ref)
	if w == nil || w.op != transport.OpRead {
		return fmt.Errorf("%w: data of a Read that nobody has asked for", transport.ErrProtocol)
	}
	for k := range w.local {
		p := &w.local[k]
		if uint64(p.key) != i.a || i.b < uint64(p.off) || i.b-uint64(p.off) > uint64(p.n) || i.length > p.n-int(i.b-uint64(p.off)) {
			continue
		}
		if !p.alive() {
			return fmt.Errorf("%w: the destination of a Read was deregistered before it was complete", transport.ErrAccess)
		}
		if w.begun+i.length > w.total {
			break
		}
		w.begun += i.length
		i.asks, i.r, i.at = at, p.r, int(i.b)
		return nil
	}
	return fmt.Errorf("%w: %d bytes of a Read for %#x at %d, which is not what is due", transport.ErrProtocol, i.length, i.a, i.b)
}

// place puts a piece of the present frame's payload where it belongs, whatever is missing before the frame (H1).
func (l *link) place(p []byte) {
	i, b := &l.in, l.b
	q := b.q
	if q.checked {
		i.sum = crc32.Update(i.sum, castagnoli, p)
	}
	if i.drop || i.bad != nil {
		i.left -= len(p)
		return
	}
	switch i.op {
	case opWrite, opReadWrite:
		if i.r.Key() != transport.Key(i.a) {
			i.bad = &violation{code: terminateAccess,
				err: fmt.Errorf("%w: the region of key %#x was deregistered while the peer wrote it", transport.ErrAccess, i.a)}
			i.left -= len(p)
			return
		}
		l.placeTagged(p)
	case opSend:
		e := q.rq.at(i.recv)
		for len(p) > 0 {
			to, at, n := span(e.local, i.off, len(p))
			if !to.alive() {
				i.bad = &violation{code: terminateNoRecv, status: transport.StatusLocalProt,
					err: fmt.Errorf("%w: the region of a posted Recv was deregistered", transport.ErrInvalid)}
				i.left -= len(p)
				return
			}
			copy(to.r.mem[at:at+n], p)
			p = p[n:]
			i.off += n
			i.left -= n
		}
	default:
		i.control = append(i.control, p...)
		i.left -= len(p)
	}
}

// placeTagged puts a piece of a tagged frame in its place; the last bytes of a Write when all else of it is there.
func (l *link) placeTagged(p []byte) {
	i := &l.in
	if i.op == opReadWrite || i.flags&flagLast == 0 {
		copy(i.r.mem[i.at:i.at+len(p)], p)
		i.at += len(p)
		i.left -= len(p)
		return
	}
	if len(p) == i.left && i.held == 0 && !l.b.q.checked && l.b.in.Whole(i.ref, i.number) {
		placeTail(i.r.mem[i.at:i.at+len(p)], p)
		i.left = 0
		return
	}
	if n := min(len(p), i.left-tailSize); n > 0 {
		copy(i.r.mem[i.at:i.at+n], p)
		i.at += n
		i.left -= n
		p = p[n:]
	}
	i.held += copy(i.last[i.held:], p)
	i.left -= len(p)
}

// checkSum compares the CRC of a payload with the one behind it.
func checkSum(told []byte, sum uint32, o op, length int) error {
	if want := binary.LittleEndian.Uint32(told); sum != want {
		return damaged(fmt.Sprintf("the payload of a %v of %d bytes", o, length), sum, want)
	}
	return nil
}

// end takes a frame whose payload is there.
func (l *link) end() error {
	i, b := &l.in, l.b
	if i.drop {
		return nil
	}
	if i.number == 0 {
		return l.endOutside()
	}
	if i.bad != nil {
		b.wrong(i.number, i.bad)
		return b.deliver()
	}
	kind, stop, err := l.complete()
	if err != nil {
		b.wrong(i.number, err)
		return b.deliver()
	}
	b.in.Arrived(i.number, kind, stop)
	if b.in.Holds() > 0 { // frames of others stand between those of a Write
		b.release()
	}
	return b.deliver()
}

// wrong notes what is wrong with a frame, for the time when everything before it has been told.
func (b *bundle) wrong(n uint64, err error) {
	if b.fault.n == 0 || n < b.fault.n {
		b.fault = fault{n, err}
	}
}

// endOutside takes a frame that has no number.
func (l *link) endOutside() error {
	i, b := &l.in, l.b
	if i.op != opLost {
		return nil
	}
	t, ranges, err := parseLost(i.control, i.ack)
	if err != nil {
		return err
	}
	b.losses.Hear(t, func(number uint16) {
		if o := b.find(number); o != nil {
			b.lose(o, errLostThere)
		} else {
			b.losses.Closed(number)
		}
		b.out.Lost(number, ranges)
	})
	if n := b.losses.Len(); n > 2*lanesLostMost {
		return fmt.Errorf("%w: %d lanes are lost and not forgotten", transport.ErrProtocol, n)
	}
	return nil
}

var errLostThere = errors.New("the peer has lost it")

// complete notes, of a frame whose payload is placed, what it completes.
func (l *link) complete() (kind lane.Kind, stop uint8, err error) {
	i, b := &l.in, l.b
	q := b.q
	switch i.op {
	case opWrite:
		if i.held > 0 {
			b.tail(l)
		}
		q.mark()
	case opReadWrite:
		q.sq.at(i.asks).got += i.length
	case opSend:
		e := b.recv(i.a)
		e.got += i.length
		if i.flags&flagLast != 0 {
			e.op, e.flags, e.bytes = opSend, i.flags, int(i.b)+i.length
			return lane.Message, 0, nil
		}
	case opImmediate:
		e := b.recv(i.a)
		e.op, e.flags, e.word = opImmediate, i.flags, i.b
		return lane.Message, 0, nil
	case opInvalidate:
		e := b.recv(i.a)
		e.op, e.flags, e.word = opInvalidate, i.flags, i.b
		return lane.Message, endInvalidate, nil
	case opReadRequest, opAtomic:
		return lane.Request, 0, b.keep(i)
	case opReadDone:
		return lane.Response, 0, nil
	case opAtomicDone:
		return lane.Response, 0, b.placeOriginal(i)
	case opClose:
		return lane.Data, endClose, nil
	case opTerminate:
		b.ending = &ending{i.laneHeader, append([]byte(nil), i.control...)}
		return lane.Data, endTerminate, nil
	}
	return lane.Data, 0, nil
}

func (b *bundle) recv(number uint64) *arrived { return &b.recvs[number&uint64(len(b.recvs)-1)] }

// tail places the last bytes of a Write, or holds them until the rest of it is there.
func (b *bundle) tail(l *link) {
	i := &l.in
	t := heldTail{r: i.r, key: transport.Key(i.a), at: i.at, n: i.held, bytes: i.last}
	i.held = 0
	if b.in.Whole(i.ref, i.number) {
		placeTail(t.r.mem[t.at:t.at+t.n], t.bytes[:t.n])
		return
	}
	b.in.Hold(i.ref, i.number, t)
}

// release places what has been held and is not to be held any longer.
func (b *bundle) release() {
	for {
		t, n, ok := b.in.Release()
		switch {
		case !ok:
			return
		case t.r.Key() != t.key:
			b.wrong(n, &violation{code: terminateAccess,
				err: fmt.Errorf("%w: the region of key %#x was deregistered while the peer wrote it", transport.ErrAccess, uint64(t.key))})
		default:
			placeTail(t.r.mem[t.at:t.at+t.n], t.bytes[:t.n])
			b.q.mark()
		}
	}
}

// acked takes the peer's acknowledgement of what this side has sent.
func (b *bundle) acked(next uint64) error {
	below := b.out.Next()
	for _, l := range b.links {
		if l.partial != 0 {
			below = min(below, l.partial)
		}
	}
	s, err := b.out.Ack(next, below)
	if err != nil {
		return fmt.Errorf("%w: %w", transport.ErrProtocol, err)
	}
	if s != nil {
		b.q.behind(s.behind)
	}
	return nil
}
