package sim

import (
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/transport"
)

// kind is the kind of a message on the wire.
type kind uint8

const (
	kindSend         kind = iota + 1 // untagged: goes into the next posted Recv
	kindWrite                        // tagged
	kindWriteImm                     // tagged, then consumes the next posted Recv
	kindRequest                      // asks for a Read or an Atomic
	kindReadResponse                 // the bytes of a Read, or the original word of an Atomic
	kindClose                        // the sender's direction is closed
)

// message is a message on the wire. Its pieces are sent in order and placed in any order; messages are
// delivered in the order in which they were begun.
type message struct {
	kind     kind
	from     *sendWQE // the request that it carries out; for an answer, the requester's
	response *response
	length   int
	lane     int // of an answer
	pieces   []piece
	sent     int
	placed   int
	// found while placing; reported in the message's turn, so that errors keep the order too
	bad *violation
}

type piece struct {
	at     int
	data   []byte // copied when it is sent
	n      int
	placed bool
	// in flight: see Costs
	travels bool
}

// violation is why a message cannot be delivered.
type violation struct {
	local  transport.Status // of the Recv or Read at this end; StatusSuccess if nothing here is at fault
	remote transport.Status // of the request at the other end
	err    error
}

// response answers a Read of the peer, or an Atomic that has been carried out.
type response struct {
	from     *sendWQE
	segs     []transport.Segment
	original []byte // the original word of an Atomic
}

func (m *message) whole() bool { return m.sent == len(m.pieces) && m.placed == m.sent }

func (m *message) untagged() bool { return m.kind == kindSend || m.kind == kindWriteImm }

// tail is the number of bytes at the end of a Write that are placed after all others.
const tail = 8

const (
	// maxPiece bounds a piece, so that a cut can strike in the middle of a long message.
	maxPiece = 64 << 10
	// costPiece is the bound where messages take time: a processor copies one piece while the next is on the
	// link.
	costPiece = 16 << 10
)

// cutUp divides a message into pieces. A Write's tail is separate from the rest; if it is not aligned, it may
// itself be cut.
func (q *qp) cutUp(m *message) {
	var cuts []int
	if q.net.costs != nil {
		for at := costPiece; at < m.length; at += costPiece {
			cuts = append(cuts, at)
		}
	} else if n := q.rng.IntN(4) + m.length/maxPiece; m.length > 1 {
		for range n {
			cuts = append(cuts, 1+q.rng.IntN(m.length-1))
		}
	}
	if (m.kind == kindWrite || m.kind == kindWriteImm) && m.length > tail {
		if (int(m.from.remote[0].Offset)+m.length)%tail == 0 {
			cuts = slices.DeleteFunc(cuts, func(c int) bool { return c > m.length-tail })
		}
		cuts = append(cuts, m.length-tail)
	}
	slices.Sort(cuts)
	at := 0
	for _, c := range append(cuts, m.length) {
		if c > at || len(m.pieces) == 0 { // an empty message has one piece, too
			m.pieces = append(m.pieces, piece{at: at, n: c - at})
			at = c
		}
	}
	q.net.counters.Messages++
	if len(m.pieces) > 1 {
		q.net.counters.Split++
	}
}

// pass drives the queue pair by an amount drawn from the seed.
func (q *qp) pass() {
	if !q.handed || q.dev.gone {
		return
	}
	if q.final() {
		if q.net.mutant == placeAfterError {
			q.receive()
		}
		return
	}
	budget := q.rng.IntN(9)
	if budget == 0 && q.busy() {
		q.net.counters.IdlePolls++
	}
	for ; budget > 0 && !q.final(); budget-- {
		if !q.step() {
			break
		}
	}
}

// step makes one step; false if there is nothing to do.
func (q *qp) step() bool {
	if f := q.pending; f != nil {
		if f.drain && q.receive() {
			return true
		}
		q.fail(f.wqe, f.status, f.err)
		return true
	}
	first, second := q.transmit, q.receive
	if q.rng.IntN(2) == 0 {
		first, second = second, first
	}
	moved := first() || second()
	if !q.final() {
		if i, _ := q.completable(); i >= 0 {
			q.completeSends()
			moved = true
		}
	}
	return moved
}

// busy reports whether a pass could do anything.
func (q *qp) busy() bool {
	if !q.handed || q.dev.gone || q.final() {
		return false
	}
	if i, _ := q.completable(); i >= 0 || q.pending != nil || q.canReceive() {
		return true
	}
	return q.wireOpen() && (q.canSend() || q.canRespond())
}

// wireOpen reports whether a piece fits on the wire to the peer.
func (q *qp) wireOpen() bool { return !q.cut && !q.final() && q.peer.onWire < q.peer.window }

func (q *qp) canSend() bool {
	return q.sending != nil || q.nextSend() != nil || q.state == transport.StateClosing && len(q.sq) == 0 &&
		!q.closeSent
}

func (q *qp) canRespond() bool { return q.responding != nil || len(q.responses) > 0 }

// nextSend returns the oldest request that is not begun, if it may begin.
func (q *qp) nextSend() *sendWQE {
	reads := 0
	for _, w := range q.sq {
		read := w.asks()
		switch {
		case !w.begun:
			fenced := w.has(transport.FlagFence) && q.net.mutant != ignoreFence &&
				!(q.net.mutant == ignoreAtomicFence && read)
			if reads > 0 && fenced || read && reads >= q.reads && q.net.mutant != ignoreDepth {
				return nil
			}
			return w
		case read && !w.done:
			reads++
		}
	}
	return nil
}

// transmit puts one piece on the wire; false if there is none, or no room.
func (q *qp) transmit() bool {
	if !q.wireOpen() {
		return false
	}
	send, respond := q.canSend(), q.canRespond()
	switch {
	case send && respond:
		send = q.rng.IntN(2) == 0
	case !send && !respond:
		return false
	}
	if send {
		q.transmitSend()
	} else {
		q.transmitResponse()
	}
	return true
}

func (q *qp) transmitSend() {
	m := q.sending
	if m == nil {
		m = q.begin()
		q.sending = m
	}
	p := &m.pieces[m.sent]
	if w := m.from; w != nil && m.kind != kindRequest {
		if w.inline != nil {
			p.data = w.inline[p.at : p.at+p.n]
		} else {
			parts, err := span(w.local, p.at, p.n)
			if err != nil {
				err = fmt.Errorf("%s: request %d: %w", q, w.id, err)
				q.cutPeer(fmt.Errorf("rank %d gave up in the middle: %w", q.dev.rank(),
					transport.ErrPeerLost))
				q.fail(w, transport.StatusLocalProt, err)
				return
			}
			p.data = join(parts, p.n)
		}
	}
	if q.put(m) {
		q.sending = nil
		if w := m.from; w == nil {
			q.closeSent = true
			q.closed()
		} else if !w.asks() && w.early {
			w.done = true
			q.net.counters.EarlyDone++
		}
	}
}

// begin makes a message for the next request, or for the close after the last one.
func (q *qp) begin() *message {
	w := q.nextSend()
	m := &message{kind: kindClose, from: w}
	if w != nil {
		w.begun = true
		m.length = w.length
		switch w.op {
		case transport.OpSend:
			m.kind = kindSend
		case transport.OpWrite:
			m.kind = kindWrite
		case transport.OpWriteImm:
			m.kind = kindWriteImm
		case transport.OpRead, transport.OpFetchAdd:
			m.kind, m.length = kindRequest, 0
		}
	}
	q.cutUp(m)
	q.peer.in = append(q.peer.in, m)
	return m
}

func (q *qp) transmitResponse() {
	m := q.responding
	if m == nil {
		r := q.responses[0]
		q.responses = q.responses[1:]
		m = &message{kind: kindReadResponse, from: r.from, response: r, length: r.from.length}
		m.lane = q.laneFor(r.from)
		q.cutUp(m)
		q.peer.in = append(q.peer.in, m)
		q.responding = m
	}
	p := &m.pieces[m.sent]
	parts, err := [][]byte(nil), error(nil)
	if word := m.response.original; word != nil {
		parts = [][]byte{word[p.at : p.at+p.n]}
	} else {
		parts, err = q.source(m.response.segs, p.at, p.n)
	}
	if err != nil {
		q.terminate(m.from, violation{remote: transport.StatusRemoteAccess, err: err})
		return
	}
	p.data = join(parts, p.n)
	if q.put(m) {
		q.responding = nil
	}
}

// laneFor chooses the lane of an answer: the designated one, or the next in turn.
func (q *qp) laneFor(w *sendWQE) int {
	if w.lane >= 1 && w.lane <= lanes && q.net.mutant != ignoreLane {
		return int(w.lane) - 1
	}
	q.nextLane = (q.nextLane + 1) % lanes
	return q.nextLane
}

// source returns the memory of n bytes at position at of the segments that a peer reads.
func (q *qp) source(segs []transport.Segment, at, n int) ([][]byte, error) {
	list := make([]sge, 0, len(segs))
	for _, s := range segs {
		if s.Length == 0 {
			continue
		}
		m, err := q.reach(s, transport.RemoteRead)
		if err != nil {
			return nil, fmt.Errorf("read: %w", err)
		}
		if q.net.mutant == readFromStart {
			s.Offset = 0
		}
		length := min(int(s.Length), len(m.buf)-int(s.Offset))
		if q.net.mutant == readFirstOnly && len(list) > 0 {
			list = append(list, list[0])
			continue
		}
		list = append(list, sge{mr: m, key: m.key, off: int(s.Offset), len: length})
	}
	return span(list, at, n)
}

// put sends the next piece of a message; true if it was the last.
func (q *qp) put(m *message) bool {
	q.travel(m, &m.pieces[m.sent])
	m.sent++
	q.peer.onWire++
	q.peer.signal()
	return m.sent == len(m.pieces)
}

func join(parts [][]byte, n int) []byte {
	data := make([]byte, 0, n)
	for _, p := range parts {
		data = append(data, p...)
	}
	return data
}

// spot is a piece that can be placed now.
type spot struct {
	m    *message
	i    int
	recv *recvWQE // of a Send
	late bool     // a piece of an earlier message is missing
}

// spots returns the pieces that can be placed now.
func (q *qp) spots() []spot {
	var list []spot
	untagged := 0
	late := false
	for _, m := range q.in {
		var recv *recvWQE
		if m.untagged() {
			if untagged < len(q.rq) {
				recv = q.rq[untagged]
			}
			untagged++
		}
		for i := range m.pieces[:m.sent] {
			p := &m.pieces[i]
			if p.placed || p.travels || m.kind == kindSend && recv == nil || q.tailWaits(m, i) {
				continue
			}
			list = append(list, spot{m: m, i: i, recv: recv, late: late})
		}
		late = late || !m.whole()
	}
	return list
}

// tailWaits reports whether piece i belongs to a Write's tail while other pieces are missing.
func (q *qp) tailWaits(m *message, i int) bool {
	if m.kind != kindWrite && m.kind != kindWriteImm || q.net.mutant == tailAnywhere {
		return false
	}
	if m.pieces[i].at < m.length-tail {
		return false
	}
	for _, p := range m.pieces {
		if !p.placed && p.at < m.length-tail {
			return true
		}
	}
	return false
}

// deliverable returns the index of the message that can be delivered now, or -1.
func (q *qp) deliverable() int {
	for i, m := range q.in {
		early := q.net.mutant == deliverEarly || q.net.mutant == atomicEarly && m.kind == kindRequest ||
			q.net.mutant == readEarly && m.kind == kindReadResponse
		refused := m.untagged() && len(q.rq) == 0 && m.sent > 0 && !m.pieces[0].travels
		if m.whole() && (i == 0 || early) || i == 0 && refused {
			return i
		}
		if q.net.mutant != deliverEarly && q.net.mutant != atomicEarly && q.net.mutant != readEarly {
			break
		}
	}
	return -1
}

func (q *qp) canReceive() bool { return q.deliverable() >= 0 || len(q.spots()) > 0 }

// receive places one piece or delivers one message; false if there is none.
func (q *qp) receive() bool {
	spots, next := q.spots(), q.deliverable()
	n := len(spots)
	if next >= 0 {
		n++
	}
	if n == 0 {
		return false
	}
	if i := q.rng.IntN(n); i < len(spots) {
		q.place(spots[i])
	} else {
		m := q.in[next]
		q.in = append(q.in[:next:next], q.in[next+1:]...)
		q.deliver(m)
	}
	return true
}

func (q *qp) place(s spot) {
	m, p := s.m, &s.m.pieces[s.i]
	p.placed = true
	m.placed++
	q.onWire--
	q.peer.signal()
	q.net.counters.Placements++
	if s.late {
		q.net.counters.Reordered++
	}
	for i := range m.pieces[:m.sent] {
		if q.tailWaits(m, i) && !m.pieces[i].placed {
			q.net.counters.EarlyTails++
			break
		}
	}
	if m.kind == kindReadResponse {
		q.readBytes[m.lane] += uint64(p.n)
	}
	if p.n > 0 && m.bad == nil {
		m.bad = q.copyIn(m, p, s.recv)
	}
	p.data = nil
	q.strike(m)
}

// copyIn copies a piece to its destination.
func (q *qp) copyIn(m *message, p *piece, recv *recvWQE) *violation {
	var list []sge
	bad := &violation{local: transport.StatusLocalProt, remote: transport.StatusRemoteOp}
	switch m.kind {
	case kindSend:
		list = recv.local
		if room := total(list); m.length > room && q.net.mutant == overlongRecv {
			p.n = max(0, min(p.n, room-p.at))
		} else if m.length > room {
			bad.local = transport.StatusLocalLength
			bad.err = fmt.Errorf("message of %d bytes for a receive of %d: %w", m.length, room,
				transport.ErrInvalid)
			return bad
		}
	case kindReadResponse:
		list = m.from.local
	case kindWrite, kindWriteImm:
		to := m.from.remote[0]
		region, err := q.reach(to, transport.RemoteWrite)
		if err != nil {
			return &violation{remote: transport.StatusRemoteAccess, err: fmt.Errorf("write: %w", err)}
		}
		off := int(to.Offset) + p.at
		if off < len(region.buf) {
			copy(region.buf[off:], p.data)
		}
		if m.kind == kindWrite {
			q.recvCQ().markPlaced(q.num)
			q.signal()
		}
		return nil
	}
	parts, err := span(list, p.at, p.n)
	if err != nil {
		bad.err = err
		return bad
	}
	data := p.data
	for _, part := range parts {
		data = data[copy(part, data):]
	}
	return nil
}

func (q *qp) deliver(m *message) {
	if m.untagged() && len(q.rq) == 0 {
		q.net.counters.RNR++
		if q.net.mutant != dropRNR {
			q.terminate(m.from, violation{remote: transport.StatusRNR,
				err: fmt.Errorf("no receive is posted: %w", transport.ErrProtocol)})
			return
		}
	}
	if m.bad != nil {
		q.refuse(m)
		return
	}
	switch m.kind {
	case kindSend, kindWriteImm:
		if len(q.rq) > 0 {
			q.deliverUntagged(m)
		}
	case kindRequest:
		if n := len(q.responses); n >= q.reads || q.responding != nil && n+1 >= q.reads {
			q.terminate(m.from, violation{remote: transport.StatusRemoteOp,
				err: fmt.Errorf("more Reads and Atomics outstanding than agreed: %d: %w", q.reads,
					transport.ErrProtocol)})
			return
		}
		r := &response{from: m.from, segs: m.from.remote}
		var err error
		if m.from.op == transport.OpRead {
			err = q.checkRead(r.segs)
			if err == nil && q.net.mutant == readCopied {
				parts, _ := q.source(r.segs, 0, m.from.length)
				r.original = join(parts, m.from.length)
			}
		} else {
			r.original, err = q.atomic(m.from)
		}
		if err != nil {
			q.terminate(m.from, violation{remote: transport.StatusRemoteAccess, err: err})
			return
		}
		q.responses = append(q.responses, r)
	case kindReadResponse:
		m.from.done = true
	case kindClose:
		q.closeHeard = true
		if q.err == nil {
			q.err = fmt.Errorf("%s: %w", q, transport.ErrClosed)
		}
		if q.state == transport.StateReady {
			q.state = transport.StateDraining
		}
		q.closed()
	}
	if w := m.from; w != nil && m.kind != kindReadResponse && m.kind != kindRequest {
		w.done = true
		q.peer.signal()
	}
}

func (q *qp) deliverUntagged(m *message) {
	w := q.rq[0]
	q.rq = q.rq[1:]
	wc := transport.WC{ID: w.id, QP: q.num, Op: transport.OpRecv}
	if m.kind == kindSend {
		wc.Bytes = min(m.length, total(w.local))
	} else {
		wc.Imm, wc.HasImm = m.from.imm, true
	}
	q.received(w, wc, m.from.has(transport.FlagSolicited))
}

func (q *qp) checkRead(segs []transport.Segment) error {
	for i, s := range segs {
		if s.Length == 0 {
			continue
		}
		if _, err := q.reach(s, transport.RemoteRead); err != nil {
			return fmt.Errorf("read: segment %d: %w", i, err)
		}
	}
	return nil
}

// refuse ends the queue pair because a message could not be placed.
func (q *qp) refuse(m *message) {
	v := *m.bad
	switch {
	case m.kind == kindReadResponse: // our own Read and region
		q.net.counters.Terminations++
		q.cutPeer(fmt.Errorf("rank %d gave up a Read in the middle: %w", q.dev.rank(), transport.ErrPeerLost))
		q.fail(m.from, v.local, fmt.Errorf("%s: request %d: %w", q, m.from.id, v.err))
	case v.local != transport.StatusSuccess:
		w := q.rq[0]
		q.rq = q.rq[1:]
		err := fmt.Errorf("%s: receive %d: %w", q, w.id, v.err)
		q.completeRecv(w, v.local, 0, err)
		q.terminate(m.from, v)
	default:
		q.terminate(m.from, v)
	}
}

// terminate ends the queue pair because the peer's request cannot be carried out, and tells the peer why.
func (q *qp) terminate(w *sendWQE, v violation) {
	q.net.counters.Terminations++
	q.cutPeerFor(w, v.remote, fmt.Errorf("refused by rank %d: %w", q.dev.rank(), v.err))
	q.fail(nil, transport.StatusFlushed, fmt.Errorf("%s: %w", q, v.err))
}

// closed ends the queue pair in an orderly way when both directions are closed.
func (q *qp) closed() {
	if !q.closeSent || !q.closeHeard || q.final() {
		return
	}
	q.state = transport.StateClosed
	q.flushRecvs(q.reason())
	q.signal()
}
