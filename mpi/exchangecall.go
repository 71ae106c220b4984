package mpi

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// exchangeCall is an exchange at one rank. A send is complete when its receiver has matched it. A rank whose
// sends are complete begins a barrier; when that is complete, so are all sends of all ranks, and no further
// message can be matched. The bytes of one may still be missing, as its sender learns that they were written
// before this rank does. So the rank then cancels its receive, and takes the message that it has matched.
//
// If several hosts have several ranks, records for ranks of another host travel together, to one of these
// ranks. It forwards them when the barrier is complete: again by synchronous sends, and then a barrier of the
// ranks of its host. A rank may get forwarded records while it is still in the first barrier. It takes them
// as it takes others, so both rounds share their tags.
//
// All records from a rank to another are in one message, in order.
type exchangeCall struct {
	c     *Comm
	state exchangeState
	got   exchangeRecord // found by next
	err   error          // the first failure
	wrong error          // the first invalid message; others wait for this rank, so the exchange goes on

	elem     int
	calls    [2]engine.GroupCall  // one for messages, one for their second messages
	begun    int                  // number of calls that have begun
	barriers [2]engine.Collective // of all ranks, and of the ranks of this host

	records   []exchangeRecord // to send
	own       []exchangeRecord // the records to this rank that next has not found yet
	out       []byte           // messages to send
	kept      []exchangeRecord // to forward
	keptBytes []byte           // their blocks

	heads      [2][]uint64 // buffers that alternately receive messages
	turn       int         // index of the one that receives the next message
	receive    engine.Request
	last       bool                // the barrier is complete: receive takes what it has matched, and ends
	operations []exchangeOperation // all requests except the receive of the next message
	sends      int                 // number of sends in operations
	ends       []exchangeEnd       // results of the latest wait, in order
	dealt      int                 // number of ends that have been processed
	stream     []byte              // records of a message that next has not found yet
	streaming  *exchangeMemory     // buffer of stream; nil if it is one of heads
	memories   []*exchangeMemory

	hosts     *coll.Hosts // nil if every record travels to its rank
	hostRanks []int32     // world ranks on this host

	// for WaitSome, which gets the receive as request 0
	at      func(i int) engine.Request
	collect func(i int, st *engine.Status, err error)
}

type exchangeState uint8

const (
	exchangeSending       exchangeState = iota // initial; left when all sends of this rank are complete
	exchangeInBarrier                          // left when those of all ranks are, and messages have come
	exchangeHandingOn                          // left when its forwarded messages have been matched
	exchangeInHostBarrier                      // left when those of the host's ranks are, and have come
	exchangeOver                               // no further message can arrive, except second messages
)

// exchangeOperation is a request other than the receive of the next message.
type exchangeOperation struct {
	h    engine.Request
	kind exchangeKind
	into *exchangeMemory // of exchangeRest
}

type exchangeKind uint8

const (
	exchangeHead    exchangeKind = iota // the receive of the next message
	exchangeRest                        // the receive of a second message
	exchangeSend                        // of either
	exchangeBarrier                     // begun when all sends are complete
)

// exchangeEnd is an operation that is complete.
type exchangeEnd struct {
	exchangeOperation
	source, bytes int // of a receive; source is a world rank
	cancelled     bool
	err           error
}

// exchangeMemory holds a message that does not fit into heads.
type exchangeMemory struct {
	words []uint64
	bytes int  // of its records
	busy  bool // it has not been read to its end
	used  bool // by this exchange
}

// errExchangeLeft fails what is under way when the program's function panics.
var errExchangeLeft = errors.New("the exchange was left before its end")

// exchangeSpare bounds the memory that a communicator keeps although its latest exchange has not used it.
const exchangeSpare = 1 << 20

// takeExchange takes the exchangeCall that the communicator keeps, or makes one.
func takeExchange(c *Comm) (*exchangeCall, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	x := c.coll.exchange.Swap(nil)
	if x == nil {
		x = newExchangeCall(c)
	}
	x.c = c
	return x, nil
}

func newExchangeCall(c *Comm) *exchangeCall {
	x := &exchangeCall{}
	for i := range x.heads {
		x.heads[i] = make([]uint64, (exchangeLengthBytes+exchangeInline)/8)
	}
	x.at = func(i int) engine.Request {
		if i == 0 {
			return x.receive
		}
		return x.operations[i-1].h
	}
	x.collect = func(i int, st *engine.Status, err error) {
		end := exchangeEnd{source: st.Source, bytes: st.Bytes, cancelled: st.Cancelled, err: err}
		if i == 0 {
			x.receive = engine.Request{}
		} else {
			end.exchangeOperation = x.operations[i-1]
			x.operations[i-1].h = engine.Request{}
		}
		x.ends = append(x.ends, end)
	}
	b := barrier(c)
	b.plan(&x.barriers[0])
	if x.hosts = x.barriers[0].Call.Hosts; x.hosts == nil {
		return x
	}
	host := x.hosts.With(c.rank)
	for _, rank := range host {
		x.hostRanks = append(x.hostRanks, int32(c.worldRank(rank)))
	}
	call := &x.barriers[1].Call
	*call = b.call
	call.Rank, call.Size, call.Fabric = slices.Index(host, c.rank), len(host), x.hosts.Inside
	c.choices.Build(&x.barriers[1].Schedule, call)
	return x
}

// giveBack gives the communicator what it keeps for its next exchange. After a failure it keeps nothing, as
// sends that are still under way read the memory. Its other requests have ended with what has failed, or do
// so at once.
func (x *exchangeCall) giveBack() {
	e := x.c.e
	e.Cancels.CancelAndFree(x.receive)
	for _, o := range x.operations {
		if o.kind == exchangeBarrier {
			e.Collectives.Fail(o.h, cmp.Or(x.err, errExchangeLeft))
		}
		e.Cancels.CancelAndFree(o.h)
	}
	for i := range x.calls[:x.begun] {
		e.Recovery.EndGroupCall(&x.calls[i])
	}
	if x.state != exchangeOver || len(x.operations) > 0 || x.err != nil {
		return
	}
	clear(x.records) // the program's memory
	x.records, x.out = x.records[:0], x.out[:0]
	x.kept, x.keptBytes = x.kept[:0], x.keptBytes[:0]
	spare := 0
	x.memories = slices.DeleteFunc(x.memories, func(m *exchangeMemory) bool {
		if !m.used {
			spare += 8 * len(m.words)
		}
		drop := !m.used && spare > exchangeSpare
		m.used, m.busy = false, false
		return drop
	})
	c := x.c
	x.ends, x.dealt = x.ends[:0], 0
	x.c, x.state, x.begun, x.got, x.receive = nil, exchangeSending, 0, exchangeRecord{}, engine.Request{}
	c.coll.exchange.Store(x)
}

// add adds a record to those to send.
func (x *exchangeCall) add(rank int, block []byte) error {
	c := x.c
	if uint(rank) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s", ErrRank, rank, c.rankRange())
	}
	x.records = append(x.records, exchangeRecord{origin: c.rank, dest: rank, block: block})
	return nil
}

// begin begins the exchange of blocks of whole elements of a size. Its error is in err.
func (x *exchangeCall) begin(elem int, element *check.Element) {
	x.elem = max(1, elem)
	x.err = x.start(element)
}

func (x *exchangeCall) start(element *check.Element) error {
	c := x.c
	for i := range x.calls {
		x.calls[i] = engine.GroupCall{Context: contextid.Collective.In(c.context), Tag: c.nextTag()}
	}
	b := barrier(c)
	b.fill(&x.barriers[0], b.nextTag())
	if x.hosts != nil { // a rank counts this barrier even if it does not come to it
		b.fill(&x.barriers[1], b.nextTag())
		x.barriers[1].Ranks = x.hostRanks
	}
	err := c.compareCompound(noRoot, "", element)
	if err == nil {
		err = c.canceller.Err()
	}
	for i := 0; i < len(x.calls) && err == nil; i++ {
		if err = c.e.Recovery.BeginGroupCall(&x.calls[i]); err == nil {
			x.begun++
		}
	}
	if err != nil {
		return err
	}
	if err := x.receiveNext(); err != nil {
		return err
	}
	x.sort()
	n := 0
	for n < len(x.records) && x.records[n].dest == c.rank {
		n++
	}
	x.own = x.records[:n]
	return x.send(x.records[n:], x.hosts != nil)
}

// next finds the next record for this rank; got is good until the next call. It returns false at the end of
// the exchange, and after a failure.
func (x *exchangeCall) next() bool {
	for x.err == nil {
		switch {
		case len(x.own) > 0:
			x.got, x.own = x.own[0], x.own[1:]
			return true
		case len(x.stream) > 0:
			if x.find() {
				return true
			}
		case x.streaming != nil:
			x.streaming.busy, x.streaming = false, nil
		case x.dealt < len(x.ends):
			x.dealt++
			x.err = x.ended(&x.ends[x.dealt-1])
		case x.sends == 0 && (x.state == exchangeSending || x.state == exchangeHandingOn):
			x.err = x.barrier()
		case x.state == exchangeOver && len(x.operations) == 0:
			x.err = x.wrong
			return false
		default:
			x.err = x.wait()
		}
	}
	return false
}

// refuse keeps the first error in received messages. The exchange returns it at its end.
func (x *exchangeCall) refuse(err error) {
	if x.wrong == nil {
		x.wrong = err
	}
}

// find takes the next record of the stream, and reports whether it is for this rank.
func (x *exchangeCall) find() bool {
	r, rest, err := cutRecord(x.stream)
	if x.stream = rest; err == nil {
		err = x.check(&r)
	}
	if err != nil {
		x.refuse(err)
		return false
	}
	if r.dest == x.c.rank {
		x.got = r
		return true
	}
	start := len(x.keptBytes)
	x.keptBytes = append(x.keptBytes, r.block...)
	r.block = x.keptBytes[start:len(x.keptBytes):len(x.keptBytes)]
	x.kept = append(x.kept, r)
	return false
}

func (x *exchangeCall) check(r *exchangeRecord) error {
	c := x.c
	handsOn := x.hosts != nil && x.state <= exchangeInBarrier && r.dest < c.size &&
		x.hosts.Together(r.dest, c.rank)
	switch {
	case r.origin >= c.size || r.dest != c.rank && !handsOn:
		return fmt.Errorf("%w: a message from rank %d to rank %d in an exchange came to rank %d", ErrRank,
			r.origin, r.dest, c.rank)
	case len(r.block)%x.elem != 0:
		return fmt.Errorf("%w: rank %d sent %d bytes, which are no whole number of elements of %d bytes",
			ErrType, r.origin, len(r.block), x.elem)
	}
	return nil
}

// sort puts records to a rank together, and ranks of a host. Each rank begins with itself and its own host,
// so that they do not all send to the same rank at first.
func (x *exchangeCall) sort() {
	c := x.c
	for i := range x.records {
		r := &x.records[i]
		r.order = (r.dest - c.rank + c.size) % c.size
		if x.hosts != nil {
			r.order += x.hosts.Distance(c.rank, r.dest) * c.size
		}
	}
	slices.SortStableFunc(x.records, func(a, b exchangeRecord) int { return cmp.Compare(a.order, b.order) })
}

// send sends records that are sorted: those to a rank in one message, and if they combine, those to several
// ranks of another host in one, as long as it is short.
func (x *exchangeCall) send(records []exchangeRecord, combine bool) error {
	for len(records) > 0 {
		n, bytes := toOneRank(records)
		if dest := records[0].dest; combine && !x.hosts.Together(x.c.rank, dest) {
			for n < len(records) && x.hosts.Together(dest, records[n].dest) {
				more, moreBytes := toOneRank(records[n:])
				if bytes+moreBytes > exchangeInline {
					break
				}
				n, bytes = n+more, bytes+moreBytes
			}
		}
		if err := x.sendMessage(records[:n], bytes); err != nil {
			return err
		}
		records = records[n:]
	}
	return nil
}

// toOneRank counts the records to the rank of the first, and their bytes in a message.
func toOneRank(records []exchangeRecord) (n, bytes int) {
	for n < len(records) && records[n].dest == records[0].dest {
		bytes += records[n].size()
		n++
	}
	return n, bytes
}

// sendMessage sends records with a total of bytes to the rank of the first.
func (x *exchangeCall) sendMessage(records []exchangeRecord, bytes int) error {
	e, first := x.c.e, &records[0]
	to := x.c.worldRank(first.dest)
	start := len(x.out)
	if bytes <= exchangeInline {
		x.out = binary.LittleEndian.AppendUint64(x.out, uint64(bytes))
		for i := range records {
			x.out = records[i].append(x.out)
		}
		h, err := e.Sends.Issend(x.calls[0].Context, x.outFrom(start), to, x.calls[0].Tag)
		return x.sent(h, err)
	}
	if len(records) == 1 {
		bytes = first.sizeAtEnd()
	}
	x.out = binary.LittleEndian.AppendUint64(x.out, uint64(bytes))
	x.out = first.appendHeader(x.out)
	message, rest := x.outFrom(start), first.block
	if len(records) > 1 {
		start = len(x.out) + exchangeHeaderBytes
		for i := range records {
			x.out = records[i].append(x.out)
		}
		rest = x.outFrom(start)
	}
	h, err := e.Sends.Issend(x.calls[0].Context, message, to, x.calls[0].Tag)
	if err := x.sent(h, err); err != nil {
		return err
	}
	h, err = e.Sends.Isend(x.calls[1].Context, rest, to, x.calls[1].Tag)
	return x.sent(h, err)
}

// outFrom returns the part appended to the messages from start on.
func (x *exchangeCall) outFrom(start int) []byte { return x.out[start:len(x.out):len(x.out)] }

func (x *exchangeCall) sent(h engine.Request, err error) error {
	if err == nil {
		x.sends++
	}
	return x.began(exchangeOperation{h: h, kind: exchangeSend}, err)
}

// began adds an operation that the engine has begun, if err is nil.
func (x *exchangeCall) began(o exchangeOperation, err error) error {
	if err != nil {
		return err
	}
	x.c.e.Cancels.Bind(o.h, x.c.canceller)
	if o.kind == exchangeHead {
		x.receive = o.h
	} else {
		x.operations = append(x.operations, o)
	}
	return nil
}

// receiveNext begins to receive the next message, if there is one: after the barrier, one that is here.
func (x *exchangeCall) receiveNext() error {
	x.turn = 1 - x.turn
	h, err := x.c.e.Recvs.Irecv(x.calls[0].Context, wordBytes(x.heads[x.turn]), AnySource, x.calls[0].Tag, 1)
	if err = x.began(exchangeOperation{h: h, kind: exchangeHead}, err); err == nil && x.last {
		err = x.c.e.Cancels.Cancel(h)
	}
	return err
}

// barrier begins the barrier that follows the sends.
func (x *exchangeCall) barrier() error {
	b := &x.barriers[0]
	if x.state++; x.state == exchangeInHostBarrier {
		b = &x.barriers[1]
	}
	h, err := x.c.e.Collectives.Start(b)
	return x.began(exchangeOperation{h: h, kind: exchangeBarrier}, err)
}

// wait waits until operations are complete. They end if a rank fails now; if one has failed before, they may
// have begun too late for that.
func (x *exchangeCall) wait() error {
	for i := range x.calls {
		if err := x.c.e.Recovery.GroupCallErr(&x.calls[i]); err != nil {
			return err
		}
	}
	x.ends, x.dealt = x.ends[:0], 0
	x.c.e.Requests.WaitSome(1+len(x.operations), x.at, 1+len(x.operations), x.collect)
	x.operations = slices.DeleteFunc(x.operations, func(o exchangeOperation) bool {
		return o.h == engine.Request{}
	})
	return nil
}

// ended does what follows from the end of an operation.
func (x *exchangeCall) ended(end *exchangeEnd) error {
	if end.kind == exchangeSend {
		x.sends--
	}
	if end.err != nil {
		return end.err
	}
	switch end.kind {
	case exchangeHead:
		if end.cancelled {
			return x.barrierEnded()
		}
		message := wordBytes(x.heads[x.turn])[:end.bytes]
		if err := x.receiveNext(); err != nil {
			return err
		}
		return x.came(message, end.source)
	case exchangeRest:
		if n := end.into.bytes - exchangeHeaderBytes; end.bytes != n {
			return fmt.Errorf("%w: rank %d sent %d bytes of the %d that it announced", ErrCount,
				x.c.localRank(end.source), end.bytes, n)
		}
		x.streaming, x.stream = end.into, wordBytes(end.into.words)[:end.into.bytes]
	case exchangeBarrier:
		x.last = true
		return x.c.e.Cancels.Cancel(x.receive)
	}
	return nil
}

// barrierEnded goes on after a barrier, when all messages of its ranks have come.
func (x *exchangeCall) barrierEnded() error {
	x.last = false
	if x.state == exchangeInHostBarrier || x.hosts == nil {
		x.state = exchangeOver
		return nil
	}
	x.state = exchangeHandingOn
	if err := x.receiveNext(); err != nil {
		return err
	}
	clear(x.records) // the program's memory
	x.records = append(x.records[:0], x.kept...)
	x.sort()
	return x.send(x.records, false)
}

// came begins to read a message, or to receive what follows it. source is a world rank.
func (x *exchangeCall) came(message []byte, source int) error {
	if len(message) < exchangeLengthBytes {
		return fmt.Errorf("%w: a message of %d bytes from rank %d in an exchange", ErrCount, len(message),
			x.c.localRank(source))
	}
	bytes, records := binary.LittleEndian.Uint64(message), message[exchangeLengthBytes:]
	switch {
	case bytes == uint64(len(records)):
		x.stream = records
		return nil
	case len(records) != exchangeHeaderBytes || bytes < exchangeHeaderBytes || bytes > uint64(mostBytes()):
		return fmt.Errorf("%w: rank %d announced %d bytes in an exchange and sent %d", ErrCount,
			x.c.localRank(source), bytes, len(records))
	}
	m := x.memory(int(bytes))
	into := wordBytes(m.words)[:m.bytes:m.bytes]
	copy(into, records)
	call := &x.calls[1]
	h, err := x.c.e.Recvs.Irecv(call.Context, into[exchangeHeaderBytes:], source, call.Tag, 1)
	return x.began(exchangeOperation{h: h, kind: exchangeRest, into: m}, err)
}

// memory finds memory for a message that does not fit into heads: the shortest that is long enough.
func (x *exchangeCall) memory(bytes int) *exchangeMemory {
	var m *exchangeMemory
	for _, candidate := range x.memories {
		if n := len(candidate.words); !candidate.busy && 8*n >= bytes && (m == nil || n < len(m.words)) {
			m = candidate
		}
	}
	if m == nil {
		m = &exchangeMemory{words: make([]uint64, (bytes+7)/8)}
		x.memories = append(x.memories, m)
	}
	m.bytes, m.busy, m.used = bytes, true, true
	return m
}
