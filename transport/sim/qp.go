package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/verbs"
)

type qp struct {
	verbs.NoInlineWriter
	verbs.NoQPPoller
	verbs.NoReadCounter

	net      *Network
	dev      *device
	cfg      transport.QPConfig
	num      transport.QPN
	peerRank uint32
	port     int
	local    string
	remote   string
	peer     *qp
	rng      *rand.Rand
	window   int // limit of unplaced pieces on the wire to this end
	reads    int // limit of outstanding Reads and Atomics in each direction: the smaller of both ends

	state      transport.State
	err        error
	handed     bool // Connected has returned, so it may be driven
	released   bool
	closeSent  bool // this direction is closed
	closeHeard bool // the peer's is
	armed      bool // to be cut in the middle of a message
	pending    *fault
	cut        bool // nothing more can be sent

	sq         []*sendWQE // not completed, oldest first
	rq         []*recvWQE
	sending    *message    // begun and not wholly on the wire
	responses  []*response // answers to the peer's Reads and Atomics, oldest first
	responding *message
	in         []*message    // on the wire to this end, in the order of their start
	readBytes  [lanes]uint64 // received for our Reads, by lane
	nextLane   int
	onWire     int // unplaced pieces of in
}

// fault will end a queue pair when it is next driven.
type fault struct {
	wqe    *sendWQE // the request at fault, if known
	status transport.Status
	err    error
	drain  bool // bytes already on the wire still arrive
}

type sge struct {
	mr  *mr
	key transport.Key // of the intended registration, as objects are reused
	off int
	len int
}

func (s sge) bytes() ([]byte, error) {
	if !s.mr.live || s.mr.key != s.key {
		return nil, fmt.Errorf("the local region is gone: %w", transport.ErrAccess)
	}
	return s.mr.buf[s.off : s.off+s.len], nil
}

// span returns the memory of n bytes at position at of a list of elements, in parts.
func span(list []sge, at, n int) ([][]byte, error) {
	var parts [][]byte
	for _, s := range list {
		if at >= s.len {
			at -= s.len
			continue
		}
		if n == 0 {
			break
		}
		mem, err := s.bytes()
		if err != nil {
			return nil, err
		}
		k := min(n, s.len-at)
		parts = append(parts, mem[at:at+k])
		at, n = 0, n-k
	}
	return parts, nil
}

func total(list []sge) int {
	sum := 0
	for _, s := range list {
		sum += s.len
	}
	return sum
}

type sendWQE struct {
	id        uint64
	op        transport.Opcode
	flags     transport.Flags
	local     []sge
	remote    []transport.Segment
	length    int
	imm       uint32
	operand   uint64         // of an Atomic
	lane      transport.Lane // of a Read
	inline    []byte
	begun     bool // its message is on the wire, at least in part
	done      bool
	early     bool // completes when it is sent, not when it has arrived
	overtakes bool // completes before earlier Reads and Atomics where allowed
}

func (w *sendWQE) has(f transport.Flags) bool { return w.flags&f != 0 }

// asks reports whether the peer answers the request.
func (w *sendWQE) asks() bool {
	return w.op == transport.OpRead || w.op == transport.OpFetchAdd
}

type recvWQE struct {
	id     uint64
	local  []sge
	notify bool
}

func (q *qp) String() string {
	return fmt.Sprintf("queue pair %d to rank %d at %s", q.num, q.peerRank, q.remote)
}

func (q *qp) Num() transport.QPN { return q.num }

func (q *qp) Query() transport.QPAttr {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return transport.QPAttr{QPConfig: q.cfg, Num: q.num, State: q.state, Peer: q.peerRank, Port: q.port,
		Local:  q.local,
		Remote: q.remote, SendHandler: q.sendCQ().handledBy(), RecvHandler: q.recvCQ().handledBy(),
		PeerRecv: q.peer.cfg.RecvWR, PeerReads: q.reads, Lanes: lanes}
}

// lanes is the number of lanes of a queue pair, for answers to Reads. No lane is ever lost.
const lanes = 2

// Lanes returns the number of lanes.
func (q *qp) Lanes() transport.LaneStats { return transport.LaneStats{Lanes: lanes} }

// OpenLanes appends the lanes.
func (q *qp) OpenLanes(to []transport.LaneAttr) []transport.LaneAttr {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	for i, n := range q.readBytes {
		to = append(to, transport.LaneAttr{Lane: transport.Lane(i + 1), ReadBytes: n})
	}
	return to
}

func (q *qp) State() transport.State {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.state
}

func (q *qp) Err() error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	return q.err
}

func (q *qp) final() bool { return q.state == transport.StateClosed || q.state == transport.StateError }

func (q *qp) PostSend(wr *transport.SendWR) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	w, err := q.checkSend(wr)
	if err != nil {
		if q.net.mutant == traceOnRefusal {
			q.fail(nil, transport.StatusFatal, err)
		}
		return fmt.Errorf("post to %s: %w", q, err)
	}
	q.sq = append(q.sq, w)
	if !w.has(transport.FlagMore) && q.handed && q.rng.IntN(2) == 0 {
		q.transmit()
	}
	q.signal()
	return nil
}

func (q *qp) checkSend(wr *transport.SendWR) (*sendWQE, error) {
	if wr == nil {
		return nil, fmt.Errorf("nil: %w", transport.ErrInvalid)
	}
	switch {
	case q.released || q.dev.gone:
		return nil, fmt.Errorf("given back: %w", transport.ErrState)
	case q.state != transport.StateReady && q.state != transport.StateDraining &&
		q.net.mutant != postWhenClosing:
		return nil, fmt.Errorf("%v: %w", q.state, transport.ErrState)
	case len(q.sq) >= q.cfg.SendWR && q.net.mutant != depthUnbounded:
		return nil, fmt.Errorf("%d send requests: %w", len(q.sq), transport.ErrQueueFull)
	case wr.Op < transport.OpSend || wr.Op > transport.OpFetchAdd || wr.Op == transport.OpRecv:
		return nil, fmt.Errorf("opcode %d: %w", wr.Op, transport.ErrInvalid)
	case wr.Flags >= transport.FlagNotify<<1:
		return nil, fmt.Errorf("flags %#x: %w", wr.Flags, transport.ErrInvalid)
	}
	if wr.Lane != transport.AnyLane && (wr.Op != transport.OpRead || wr.Lane > transport.MaxLane) {
		return nil, fmt.Errorf("opcode %d over lane %d: %w", wr.Op, wr.Lane, transport.ErrInvalid)
	}
	if wr.Op == transport.OpFetchAdd {
		if err := q.checkAtomic(wr); err != nil {
			return nil, err
		}
	}
	w := &sendWQE{id: wr.ID, op: wr.Op, flags: wr.Flags, imm: wr.Imm, operand: wr.Operand,
		lane: wr.Lane, remote: append([]transport.Segment(nil), wr.Remote...)}
	var right transport.Access
	if w.asks() {
		right = transport.LocalWrite
	}
	local, length, err := q.checkLocal(wr.Local, right)
	if err != nil {
		return nil, err
	}
	w.local, w.length = local, length
	if err := q.checkRemote(w); err != nil {
		return nil, err
	}
	if w.has(transport.FlagInline) {
		if w.asks() {
			return nil, fmt.Errorf("a Read or an Atomic cannot be inline: %w", transport.ErrInvalid)
		}
		if length > attr.MaxInline {
			return nil, fmt.Errorf("%d bytes inline, at most %d: %w", length, attr.MaxInline,
				transport.ErrInvalid)
		}
		if q.net.mutant != inlineLate {
			w.inline = gather(make([]byte, 0, length), local)
		}
	}
	w.early = q.rng.IntN(2) == 0 || q.net.costs != nil
	w.overtakes = q.rng.IntN(2) == 0
	return w, nil
}

func gather(dst []byte, list []sge) []byte {
	for _, s := range list {
		dst = append(dst, s.mr.buf[s.off:s.off+s.len]...)
	}
	return dst
}

func (q *qp) checkLocal(list []transport.SGE, right transport.Access) ([]sge, int, error) {
	if len(list) > attr.MaxSGE {
		return nil, 0, fmt.Errorf("%d local elements, at most %d: %w", len(list), attr.MaxSGE,
			transport.ErrInvalid)
	}
	out := make([]sge, len(list))
	sum := 0
	for i, e := range list {
		m, ok := e.MR.(*mr)
		switch {
		case !ok || m == nil:
			return nil, 0, fmt.Errorf("local element %d names no region of this provider: %w", i,
				transport.ErrInvalid)
		case !m.live:
			return nil, 0, fmt.Errorf("local element %d names a region that is gone: %w", i,
				transport.ErrInvalid)
		case m.pd != q.cfg.PD && q.net.mutant != noDomain:
			return nil, 0, fmt.Errorf("local element %d is of another protection domain: %w: %w", i,
				transport.ErrInvalid,
				transport.ErrAccess)
		case right != 0 && m.access&(right|transport.RemoteWrite|transport.RemoteAtomic) == 0 &&
			q.net.mutant != noRights:
			return nil, 0, fmt.Errorf("local element %d may not be written: %w: %w", i, transport.ErrInvalid,
				transport.ErrAccess)
		case e.Offset < 0 || e.Length < 0 || e.Offset > len(m.buf) || e.Length > len(m.buf)-e.Offset:
			return nil, 0, fmt.Errorf("local element %d: %d bytes at %d of a region of %d: %w: %w", i,
				e.Length, e.Offset,
				len(m.buf), transport.ErrInvalid, transport.ErrAccess)
		case e.Length > attr.MaxMessage-sum:
			return nil, 0, fmt.Errorf("more than %d bytes: %w", attr.MaxMessage, transport.ErrInvalid)
		}
		sum += e.Length
		out[i] = sge{mr: m, key: m.key, off: e.Offset, len: e.Length}
	}
	return out, sum, nil
}

func (q *qp) checkRemote(w *sendWQE) error {
	minSegments, maxSegments := 0, 0
	switch w.op {
	case transport.OpWrite, transport.OpWriteImm:
		maxSegments = 1
		if w.length > 0 {
			minSegments = 1
		}
	case transport.OpRead:
		minSegments, maxSegments = 1, attr.MaxSegments
	case transport.OpFetchAdd:
		minSegments, maxSegments = 1, 1
	}
	if w.asks() && q.reads == 0 {
		return fmt.Errorf("a Read or an Atomic, and no Reads were agreed for this queue pair: %w",
			transport.ErrInvalid)
	}
	if len(w.remote) < minSegments || len(w.remote) > maxSegments {
		return fmt.Errorf("%d remote segments, want %d to %d: %w", len(w.remote), minSegments, maxSegments,
			transport.ErrInvalid)
	}
	rest := uint64(w.length)
	agree := true
	for _, s := range w.remote {
		agree = agree && s.Length <= rest
		rest -= min(rest, s.Length)
	}
	if len(w.remote) > 0 && (!agree || rest > 0) && q.net.mutant != lengthsDisagree {
		return fmt.Errorf("remote segments are not as long as the %d local bytes: %w", w.length,
			transport.ErrInvalid)
	}
	return nil
}

func (q *qp) PostRecv(wr *transport.RecvWR) error {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	w, err := q.checkRecv(wr)
	if err != nil {
		return fmt.Errorf("post receive to %s: %w", q, err)
	}
	if q.final() {
		q.completeRecv(w, transport.StatusFlushed, 0, q.reason())
		return nil
	}
	q.rq = append(q.rq, w)
	q.signal()
	return nil
}

func (q *qp) checkRecv(wr *transport.RecvWR) (*recvWQE, error) {
	switch {
	case wr == nil:
		return nil, fmt.Errorf("nil: %w", transport.ErrInvalid)
	case q.released || q.dev.gone:
		return nil, fmt.Errorf("given back: %w", transport.ErrState)
	case len(q.rq) >= q.cfg.RecvWR:
		return nil, fmt.Errorf("%d receives: %w", len(q.rq), transport.ErrQueueFull)
	}
	local, _, err := q.checkLocal(wr.Local, transport.LocalWrite)
	if err != nil {
		return nil, err
	}
	return &recvWQE{id: wr.ID, local: local, notify: wr.Notify}, nil
}

func (q *qp) Flush() {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.net.mutant == holdMore || !q.handed {
		return
	}
	for q.transmit() {
	}
}

func (q *qp) Close() {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.state != transport.StateReady && q.state != transport.StateDraining {
		return
	}
	q.state = transport.StateClosing
	if q.net.mutant == closeDrops {
		q.flushSends(nil, 0, q.reason())
	}
	q.signal()
}

func (q *qp) Abort(cause error) {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	q.abort(cause)
}

func (q *qp) abort(cause error) {
	if q.final() {
		return
	}
	text := "without a cause"
	if cause != nil {
		text = cause.Error()
	} else {
		cause = transport.ErrState
	}
	q.cutPeer(fmt.Errorf("aborted by rank %d at %s: %s: %w", q.dev.rank(), q.local, text,
		transport.ErrPeerLost))
	q.fail(nil, transport.StatusFlushed, fmt.Errorf("%s: aborted: %w", q, cause))
}

func (q *qp) Release() {
	q.net.mu.Lock()
	defer q.net.mu.Unlock()
	if q.released {
		return
	}
	q.abort(fmt.Errorf("given back while open: %w", transport.ErrState))
	q.detach()
}

// detach removes the queue pair from its device.
func (q *qp) detach() {
	if q.released {
		return
	}
	q.released = true
	delete(q.dev.qps, q.num)
	q.pd().users--
	q.eachCQ(func(c *cq) {
		c.drop(q.num)
		for i, have := range c.qps {
			if have == q {
				c.qps = append(c.qps[:i], c.qps[i+1:]...)
				break
			}
		}
	})
}

func (q *qp) pd() *pd     { return q.cfg.PD.(*pd) }
func (q *qp) sendCQ() *cq { return q.cfg.SendCQ.(*cq) }
func (q *qp) recvCQ() *cq { return q.cfg.RecvCQ.(*cq) }

func (q *qp) eachCQ(f func(*cq)) {
	f(q.sendCQ())
	if q.recvCQ() != q.sendCQ() {
		f(q.recvCQ())
	}
}

// signal ends the Waits for this queue pair's CQs.
func (q *qp) signal() { q.eachCQ((*cq).signal) }

// reason returns the error of a flushed request.
func (q *qp) reason() error {
	if q.err != nil {
		return q.err
	}
	return fmt.Errorf("%s: closed: %w", q, transport.ErrState)
}

// cutPeer cuts the wire: this end sends nothing more, and the peer finds the cause when it is next driven.
func (q *qp) cutPeer(cause error) { q.cutPeerFor(nil, transport.StatusFatal, cause) }

// cutPeerFor is cutPeer where a request of the peer is at fault.
func (q *qp) cutPeerFor(wqe *sendWQE, status transport.Status, cause error) {
	if q.cut {
		return
	}
	p := q.peer
	q.cut, p.cut = true, true
	if p.pending == nil && !p.final() {
		p.pending = &fault{wqe: wqe, status: status, err: fmt.Errorf("%s: %w", p, cause),
			drain: wqe == nil && p.rng.IntN(2) == 0}
	}
	p.signal()
}

// fail moves the queue pair into error: every posted request completes once, in order.
func (q *qp) fail(wqe *sendWQE, status transport.Status, err error) {
	if q.final() {
		return
	}
	q.state, q.err = transport.StateError, err
	q.pending, q.sending, q.responding, q.responses = nil, nil, nil, nil
	q.loseWire()
	q.flushSends(wqe, status, err)
	q.flushRecvs(err)
	q.signal()
}

// loseWire discards what is on the wire to this end.
func (q *qp) loseWire() {
	q.net.counters.Lost += len(q.in)
	if q.net.mutant != placeAfterError {
		q.in, q.onWire = nil, 0
	}
	q.peer.signal() // its window is open, or its wire is cut
}

// flushSends completes the requests that are done and may complete, then fails the rest: nothing succeeds
// after a failure.
func (q *qp) flushSends(wqe *sendWQE, status transport.Status, err error) {
	for _, w := range q.sq {
		w.overtakes = true
	}
	q.completeSends()
	sq := q.sq
	q.sq = nil
	if q.net.mutant == flushBackwards {
		slices.Reverse(sq)
	}
	for i, w := range sq {
		s := transport.StatusFlushed
		if w == wqe || wqe == nil && i == 0 && status == transport.StatusFatal {
			s = status
		}
		q.completeSend(w, s, err)
		if i == 0 && q.net.mutant == flushTwice {
			q.completeSend(w, s, err)
		}
	}
}

func (q *qp) flushRecvs(err error) {
	rq := q.rq
	q.rq = nil
	if q.net.mutant == forgetFlush {
		return
	}
	for _, w := range rq {
		q.completeRecv(w, transport.StatusFlushed, 0, err)
	}
}

// completable returns the index of the next request to complete, and whether it overtakes a Read or an
// Atomic; -1 if none can complete.
//
// Requests complete in order, except that a later one may overtake a signalled Read or Atomic. After an
// unsignalled one, the completion of a later request means that its buffers are free.
func (q *qp) completable() (i int, overtakes bool) {
	for i, w := range q.sq {
		read := w.asks()
		switch {
		case w.done && (!overtakes || !read && w.overtakes):
			return i, overtakes
		case !w.begun:
			return -1, false // nor is any after it
		case read && w.has(transport.FlagSignaled):
			overtakes = true
		default:
			return -1, false
		}
	}
	return -1, false
}

func (q *qp) completeSends() {
	for {
		i, overtakes := q.completable()
		if i < 0 {
			return
		}
		w := q.sq[i]
		copy(q.sq[1:i+1], q.sq[:i])
		q.sq = q.sq[1:]
		if overtakes {
			q.net.counters.Overtaken++
		}
		q.completeSend(w, transport.StatusSuccess, nil)
	}
}

func (q *qp) completeSend(w *sendWQE, status transport.Status, err error) {
	if status == transport.StatusSuccess {
		if !w.has(transport.FlagSignaled) && q.net.mutant != signalAll {
			return
		}
		err = nil
	}
	wc := transport.WC{ID: w.id, QP: q.num, Op: w.op, Status: status, Err: err}
	if w.asks() && err == nil {
		wc.Bytes = w.length
	}
	q.sendCQ().push(wc)
	if w.has(transport.FlagNotify) {
		q.sendCQ().raise()
	}
}

func (q *qp) completeRecv(w *recvWQE, status transport.Status, bytes int, err error) {
	q.received(w, transport.WC{ID: w.id, QP: q.num, Op: transport.OpRecv, Status: status, Bytes: bytes,
		Err: err}, false)
}

// received completes a posted Recv.
func (q *qp) received(w *recvWQE, wc transport.WC, solicited bool) {
	c := q.recvCQ()
	c.push(wc)
	if solicited && q.net.mutant != ignoreSolicited {
		c.match(transport.NotifySolicited)
	}
	if w.notify {
		c.raise()
	}
}
