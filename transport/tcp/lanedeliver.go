package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/tcp/internal/lane"
)

// deliver tells what has arrived with nothing missing before it, in order (H3), and then what is wrong with what comes next, if anything.
func (b *bundle) deliver() error {
	q := b.q
	for q.fd >= 0 {
		run, ok := b.in.Deliver()
		if !ok {
			break
		}
		if err := b.deliverRun(run); err != nil {
			return err
		}
	}
	if q.fd >= 0 && b.fault.n != 0 && b.fault.n <= b.in.Next() {
		return b.fault.err
	}
	return nil
}

// deliverRun tells what the record of a run says: the doorbell for its Read Requests, a completion for each of its messages, and the end of
// each of our Reads; then what has to happen exactly behind it.
func (b *bundle) deliverRun(run lane.Run) error {
	q := b.q
	for range run.Requests {
		if err := b.doorbell(); err != nil {
			return err
		}
	}
	messages := run.Messages
	if run.End == endInvalidate {
		messages--
	}
	for range messages {
		if err := b.message(); err != nil || q.fd < 0 {
			return err
		}
	}
	for range run.Responses {
		if err := b.response(); err != nil || q.fd < 0 {
			return err
		}
	}
	switch run.End {
	case endInvalidate:
		return b.message()
	case endClose:
		return b.closed()
	case endTerminate:
		b.end()
	}
	return nil
}

// keep stores a Read Request or an Atomic of the peer in its place of the queue, where it waits for its doorbell.
func (b *bundle) keep(i *arriving) error {
	q := b.q
	ahead := i.ref - b.rung
	if ahead >= maxReads || uint64(q.answers.tail-q.answers.head)+ahead >= maxReads {
		return &violation{code: terminateReads, err: fmt.Errorf("%w: more than %d Reads outstanding", transport.ErrProtocol, maxReads)}
	}
	if q.answers.ring == nil {
		q.answers.ring = make([]answer, maxReads) // as many as can be outstanding: those that wait have their places too
	}
	a := q.answers.at(q.answers.tail + uint32(ahead))
	*a = answer{number: i.a, atomic: i.op == opAtomic}
	p := i.control
	if a.atomic {
		if i.b != atomicFetchAdd && i.b != atomicCompareSwap || len(p) != atomicSize {
			return fmt.Errorf("%w: an Atomic of operation %d, %d bytes of it", transport.ErrProtocol, i.b, len(p))
		}
		// Its particulars wait where a Read has its segments.
		a.src[0] = parseSegment(p)
		a.dst[0] = transport.Segment{Offset: binary.LittleEndian.Uint64(p[24:]), Length: i.b}
		return nil
	}
	a.nsrc, a.ndst = int(i.b>>32), int(uint32(i.b))
	if a.nsrc < 1 || a.nsrc > maxSegments || a.ndst < 1 || a.ndst > maxSegments || len(p) != (a.nsrc+a.ndst)*segmentSize {
		return fmt.Errorf("%w: a Read of %d into %d segments, %d bytes of them", transport.ErrProtocol, a.nsrc, a.ndst, len(p))
	}
	var near, far uint64
	for k := range a.nsrc {
		a.src[k] = parseSegment(p)
		p = p[segmentSize:]
		near += min(a.src[k].Length, maxMessage+1)
	}
	for k := range a.ndst {
		a.dst[k] = parseSegment(p)
		p = p[segmentSize:]
		if a.dst[k].Length > maxMessage {
			return fmt.Errorf("%w: a Read into a segment of %d bytes", transport.ErrProtocol, a.dst[k].Length)
		}
		far += a.dst[k].Length
	}
	if far != near && near <= maxMessage || far == 0 {
		return fmt.Errorf("%w: a Read of %d bytes into %d", transport.ErrProtocol, near, far)
	}
	a.total = int(far)
	return nil
}

// doorbell takes the next Read Request, or Atomic, into the queue of those that are answered: everything before it is placed.
func (b *bundle) doorbell() error {
	q := b.q
	a := q.answers.at(q.answers.tail)
	if a.number < q.askedNext {
		return fmt.Errorf("%w: Read or Atomic %d behind %d", transport.ErrProtocol, a.number, q.askedNext-1)
	}
	q.askedNext = a.number + 1
	b.rung++
	if q.answers.head != q.answers.tail {
		a.refused = q.answers.at(q.answers.tail - 1).refused
	}
	q.answers.tail++
	if a.refused != nil {
		return nil
	}
	if a.atomic {
		var payload [atomicSize]byte
		putSegment(payload[:], a.src[0])
		binary.LittleEndian.PutUint64(payload[24:], a.dst[0].Offset)
		q.change(a, a.dst[0].Length, payload[:])
		return nil
	}
	for _, s := range a.src[:a.nsrc] {
		if _, err := q.dev.regions.find(q, s.Key, transport.RemoteRead, s.Offset, s.Length); err != nil {
			a.refused = err
			return nil
		}
	}
	return nil
}

// message completes the oldest posted Recv, with the particulars that were noted when its message came.
func (b *bundle) message() error {
	q := b.q
	r := q.rq.front()
	e := b.recv(q.recvMsn)
	x := *e
	*e = arrived{}
	if r == nil {
		return &violation{code: terminateNoRecv, err: fmt.Errorf("%w: a message of the peer found no Recv posted", transport.ErrProtocol)}
	}
	if x.begun != x.got {
		return fmt.Errorf("%w: Send %d ends before its frames", transport.ErrProtocol, q.recvMsn)
	}
	wc, notify := transport.WC{ID: r.id, QP: q.num, Op: transport.OpRecv, Bytes: x.got}, r.notify
	switch x.op {
	case opSend:
		if x.got != x.bytes {
			return fmt.Errorf("%w: Send %d of %d bytes, of which %d have come", transport.ErrProtocol, q.recvMsn, x.bytes, x.got)
		}
	case opImmediate:
		if x.got != 0 {
			return fmt.Errorf("%w: an immediate behind %d bytes of Send %d", transport.ErrProtocol, x.got, q.recvMsn)
		}
		wc.Imm, wc.HasImm = x.word, true
	case opInvalidate:
		m := q.window(transport.Key(x.word))
		if m == nil {
			return &violation{code: terminateKey,
				err: fmt.Errorf("%w: the peer invalidates the key %#x, of no window that is bound to this queue pair", transport.ErrAccess, x.word)}
		}
		m.unbind()
		wc.Key = transport.Key(x.word)
	default:
		return fmt.Errorf("%w: message %d is not the one that came", transport.ErrProtocol, q.recvMsn)
	}
	q.rq.pop() // first: if the queue is overrun, push flushes what is posted
	q.recvMsn++
	b.urgent = true
	q.in.flags = x.flags
	q.received(wc, notify)
	return nil
}

// placeOriginal places the answer to an Atomic of ours: the word as it was.
func (b *bundle) placeOriginal(i *arriving) error {
	w, _ := b.asking(i.a)
	if w == nil || w.op == transport.OpRead {
		return fmt.Errorf("%w: end of Atomic %d, which is not what is due", transport.ErrProtocol, i.a)
	}
	p := w.local[0]
	if !p.alive() {
		return fmt.Errorf("%w: the destination of an Atomic was deregistered before it was complete", transport.ErrAccess)
	}
	var original [wordSize]byte
	binary.NativeEndian.PutUint64(original[:], i.b)
	placeTail(p.r.mem[p.off:][:wordSize], original[:])
	w.got = wordSize
	return nil
}

// response reports our oldest Read or Atomic: its answer has come whole, and so has everything before that.
func (b *bundle) response() error {
	q := b.q
	w := q.reading()
	if w == nil || w.got != w.total || w.op == transport.OpRead && w.begun != w.got {
		return fmt.Errorf("%w: the end of a Read or an Atomic which is not what is due", transport.ErrProtocol)
	}
	w.done = true
	q.read++
	q.retire()
	return nil
}

// closed takes the peer's Close. It is acknowledged at once: the peer waits for that.
func (b *bundle) closed() error {
	q := b.q
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
	b.acknowledge()
	q.maybeClosed()
	return nil
}

// end takes the peer's Terminate, when its turn has come or nothing will come before it any more.
func (b *bundle) end() {
	q := b.q
	if b.ending == nil || q.fd < 0 {
		return
	}
	q.in.header, q.in.control = b.ending.header, b.ending.control
	q.terminated()
}

// refused notes how the request ends whose frame the peer has found to be wrong, with its Terminate.
func (b *bundle) refused(status transport.Status) {
	if n := b.ending.ref; n >= b.out.First() && n < b.out.Next() {
		switch s := b.out.What(n); s.op {
		case opWrite, opSend, opImmediate, opInvalidate:
			b.q.sq.at(s.source).failed = status
		}
	}
}
