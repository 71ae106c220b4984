package engine

import (
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/internal/words"
	"github.com/weft-mpi/weft/mpi/internal/match"
)

// Request is a handle to an operation under way: an index and a generation, free to copy. The zero Request is complete, and so is Null.
type Request struct {
	index uint32 // of the slot in the pool, plus one
	gen   uint32
}

// Null is the handle of an operation with nobody (MPI_PROC_NULL): it is complete from the start, and is used up by nothing.
var Null = Request{gen: 1}

// ProcNull is the source that its status tells.
const ProcNull = -2

var (
	nullStatus = Status{Source: ProcNull, Tag: AnyTag, Elem: 1}
	noStatus   Status
)

// errUsed is for a handle that names no operation.
var errUsed = fmt.Errorf("%w: it was waited for already, or never existed", ErrRequest)

// Status is what a completed receive found. For sends Cancelled alone is set.
type Status struct {
	Source    int // world rank
	Tag       int
	Bytes     int
	Elem      int  // size of one element of the receive's type
	Cancelled bool // the operation was withdrawn before it had any effect
}

type requestKind uint8

const (
	kindSend requestKind = iota + 1
	kindRecv
)

// request is an operation under way. It lives in the pool; its address never changes.
type request struct {
	done  uint32 // atomic: the generation that is complete; set last: whoever sees it may read status and err
	gen   uint32
	index uint32
	operation
	next   *request
	posted match.Posted[*request]
	msg    eager.Message // a send on its way
}

// operation is what a request forgets when it is given back.
type operation struct {
	kind   requestKind
	whole  bool // a receive: all of its message has come, or is being fetched
	shared bool // several have slept on it: all sleepers look when it is done
	orphan bool // nobody will collect it
	sync   bool // a send that is complete only when its receive has started
	minded bool // there may be a waiter, a peer or a cause, or nobody to collect it: most that are complete at once have none of these
	status Status
	vec    [][]byte  // the user's buffer, in one piece or several
	one    [1][]byte // vec of a buffer in one piece
	err    error
	rank   int      // world rank of the destination; for a receive, of the source or AnySource
	came   int      // a receive: bytes of its message that have come, or are being fetched
	open   int      // announcements without their FIN; for a receive, fetches under way
	waiter *waiter  // who sleeps until it is done
	peer   *peer    // the peer that holds its send, or whose message it fetches
	number uint64   // of an announced send, among those to its peer
	filed  *arrival // a send of this rank to itself that waits for its receive
	scope  *Scope   // whose end gives it up
	cause  error    // a send that was given up, and whose buffer the peer may still read: why
}

// at notes whose message the request fetches, or who holds its send.
func (r *request) at(p *peer) { r.peer, r.minded = p, true }

// doneIs tells whether the operation of a generation is over, without the lock.
func (r *request) doneIs(gen uint32) bool { return atomic.LoadUint32(&r.done) == gen }

// completed tells whether the operation is over. The lock is held.
func (r *request) completed() bool { return r.doneIs(r.gen) }

func (r *request) handle() Request { return Request{r.index + 1, r.gen} }

// contiguous makes buf the request's buffer.
func (r *request) contiguous(buf []byte) {
	r.one[0] = buf
	r.vec = r.one[:]
}

// room is the length of the user's buffer.
func (r *request) room() int {
	n := 0
	for _, e := range r.vec {
		n += len(e)
	}
	return n
}

// place copies bytes to an offset of the user's buffer, as many as there is room for.
func (r *request) place(at int, b []byte) {
	if len(r.vec) == 1 && at+len(b) <= len(r.vec[0]) {
		words.Copy(r.vec[0][at:], b)
		return
	}
	for _, e := range r.vec {
		if at >= len(e) {
			at -= len(e)
			continue
		}
		n := copy(e[at:], b)
		if b, at = b[n:], 0; len(b) == 0 {
			return
		}
	}
}

// window appends to list what lies between two offsets of the user's buffer.
func (r *request) window(list [][]byte, from, to int) [][]byte {
	for _, e := range r.vec {
		if from < len(e) && to > 0 {
			list = append(list, e[max(from, 0):min(to, len(e))])
		}
		from, to = from-len(e), to-len(e)
	}
	return list
}

// token names the request to the rendezvous protocol; a token of an earlier use finds nothing.
func (r *request) token() uint64 { return uint64(r.gen)<<32 | uint64(r.index) }

// requestPool hands out requests by index. It grows by chunks and never shrinks: what it holds is bounded by the largest
// number of operations that were under way at once.
type requestPool struct {
	chunks [][]request
	free   *request

	// A send that was complete when it began needs no more than a number to be waited for: its receipt, whose handle has the highest bit of the
	// index set. All of them stand for one request.
	receipts []uint32 // generation of each
	unused   []uint32
	sent     request // its generation, 0, is complete from the start
}

const receiptBit = 1 << 31

const requestChunk = 256

func (p *requestPool) get() *request {
	if p.free == nil {
		chunk := make([]request, requestChunk)
		for i := range chunk {
			r := &chunk[i]
			r.index = uint32(len(p.chunks)*requestChunk + i)
			r.gen = 1
			r.posted.Value = r
			r.next, p.free = p.free, r
		}
		p.chunks = append(p.chunks, chunk)
	}
	r := p.free
	p.free, r.next = r.next, nil
	return r
}

// put takes a request back; its handles and tokens match nothing from now on.
func (p *requestPool) put(r *request) {
	r.gen++
	if r.gen == 0 {
		r.gen = 1
	}
	r.operation = operation{}
	if r.msg.Elems != nil {
		r.msg = eager.Message{}
	}
	r.next, p.free = p.free, r
}

// receipt gives the handle of a send that is complete.
func (p *requestPool) receipt() Request {
	last := len(p.unused) - 1
	if last < 0 {
		p.sent.kind = kindSend
		p.receipts = append(p.receipts, 1)
		p.unused = append(p.unused, uint32(len(p.receipts)-1))
		last = 0
	}
	i := p.unused[last]
	p.unused = p.unused[:last]
	return Request{receiptBit | i, p.receipts[i]}
}

// find gives the request behind a handle, nil if the handle is stale or made up.
func (p *requestPool) find(h Request) *request {
	if h.index&receiptBit != 0 {
		if i := h.index &^ receiptBit; int(i) < len(p.receipts) && p.receipts[i] == h.gen {
			return &p.sent
		}
		return nil
	}
	i := int(h.index) - 1
	if i < 0 || i >= len(p.chunks)*requestChunk {
		return nil
	}
	r := &p.chunks[i/requestChunk][i%requestChunk]
	if r.gen != h.gen || r.kind == 0 {
		return nil
	}
	return r
}

// underWay goes through the requests that are not complete. The loop may complete the one at hand, and begin others.
func (p *requestPool) underWay() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for _, chunk := range p.chunks {
			for i := range chunk {
				if r := &chunk[i]; r.kind != 0 && !r.completed() && !yield(r) {
					return
				}
			}
		}
	}
}

func (p *requestPool) byToken(t uint64) *request {
	return p.find(Request{uint32(t) + 1, uint32(t >> 32)})
}

// complete ends an operation: its buffer is the user's again.
func (e *Engine) complete(r *request, err error) {
	r.err = err
	if !r.minded {
		sys.StoreRelease32(&r.done, r.gen)
		return
	}
	if r.cause != nil {
		r.err = r.cause
		if err != nil {
			r.err = fmt.Errorf("%w, and %w", r.cause, err)
		}
	}
	r.peer = nil
	w, shared := r.waiter, r.shared
	r.waiter = nil
	sys.StoreRelease32(&r.done, r.gen)
	if r.orphan {
		e.collect(r.handle(), r)
	}
	switch {
	case shared:
		e.waiting.wakeAll()
	case w != nil:
		e.waiting.wake(w)
	}
}

// collect takes the result of a completed request, which h names, and gives the request back to the pool.
func (e *Engine) collect(h Request, r *request) (Status, error) {
	st, err := r.status, r.err
	e.requests.back(h, r)
	return st, err
}

// back takes a completed request back, or a receipt.
func (p *requestPool) back(h Request, r *request) {
	if r != &p.sent {
		p.put(r)
		return
	}
	i := h.index &^ receiptBit
	p.receipts[i]++
	p.unused = append(p.unused, i)
}
