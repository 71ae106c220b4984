package engine

import (
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/internal/wordcopy"
	"github.com/weft-mpi/weft/mpi/internal/match"
)

// Request is a handle to an operation under way: an index and a generation, free to copy. The zero Request is
// complete, and so is Null.
type Request struct {
	index uint32 // of the slot in the pool, plus one
	gen   uint32
}

// Null is the handle of an operation with MPI_PROC_NULL: it is always complete, and waiting for it does not
// use it up.
var Null = Request{gen: 1}

// ProcNull is the source in the status of Null.
const ProcNull = -2

var (
	nullStatus = Status{Source: ProcNull, Tag: AnyTag, Elem: 1}
	noStatus   Status
)

// errUsed is the error for a handle that names no operation.
var errUsed = fmt.Errorf("%w: it was waited for already, or never existed", ErrRequest)

// Status is the result of a receive. For sends only Cancelled is set.
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
	kindCollective
	kindOneSided // on a window
	kindTask     // of BeginTask
)

// request is an operation under way. It belongs to the pool; its address never changes. The fields that most
// receives need are adjacent: a short message touches no others.
type request struct {
	done  uint32 // atomic: the generation that is complete; set last, so status and err are valid
	gen   uint32
	index uint32
	operation
	next   *request
	posted match.Posted[*request]
	relations
	msg eager.Message // a send on its way
}

// operation has the fields that are reset when a request goes back to the pool.
type operation struct {
	kind         requestKind
	allArrived   bool // a receive: all of its message has come, or is being fetched
	manySleepers bool // several goroutines have slept on it: its completion wakes all sleepers
	detached     bool // nobody will collect it
	sync         bool // a send that is complete only when its receive has started
	// it may have relations, or is detached, so its completion takes the slow path
	observed      bool
	cancel        cancelState
	status        Status
	vec           [][]byte    // the user's buffer, or several
	one           [1][]byte   // vec of a single buffer
	view          *viewBuffer // instead of vec, a buffer that is not contiguous
	err           error
	rank          int // world rank of the destination; for a receive, of the source or AnySource
	received      int // a receive: bytes of its message that have arrived, or are being fetched
	openTransfers int // announcements without FIN; of a receive, or on a window, transfers under way
}

// relations are the relations of an operation to other objects. They are zero unless the operation is
// observed, so resetting a request without them costs nothing.
type relations struct {
	sleeper      *sleeper           // sleeps until it is complete
	sleptAt      time.Duration      // when a goroutine first slept on it, since the engine was made; 0 before
	peer         *peer              // the peer of its send, or of the message that it fetches
	announcement uint64             // a send: the id of its first announcement, plus one; 0 for none
	unexpected   *unexpectedMessage // a send of this rank to itself that waits for its receive: its message
	fetchesFor   *unexpectedMessage // the message of a Message whose bytes this receive fetches
	canceller    *Canceller         // cancels it; nil for none
	sized        *Sized             // the buffer of a receive of any length
	collective   *Collective        // that it is a message of; for kindCollective, itself
	cause        error              // why the send is being withdrawn: its error if it is withdrawn
	choice       int                // the number of the receive's choice, plus one; 0 for none
	taken        bool               // it has matched a message
}

// matched sets the message of a receive.
func (r *request) matched(source, tag, bytes int) {
	r.status.Source, r.status.Tag, r.status.Bytes = source, tag, bytes
	if r.observed {
		if r.taken = true; r.sized != nil {
			r.vec = r.sized.allocate(bytes)
		}
	}
}

// setPeer sets the peer of a send, or of the message that a receive fetches.
func (r *request) setPeer(p *peer) { r.peer, r.observed = p, true }

// isDone reports whether the operation of a generation is complete. It needs no lock.
func (r *request) isDone(gen uint32) bool { return atomic.LoadUint32(&r.done) == gen }

// completed reports whether the operation is complete.
func (r *request) completed() bool { return r.isDone(r.gen) }

func (r *request) handle() Request { return Request{r.index + 1, r.gen} }

// contiguous makes buf the request's buffer.
func (r *request) contiguous(buf []byte) {
	r.one[0] = buf
	r.vec = r.one[:]
}

// bufferLen is the length of the user's buffer.
func (r *request) bufferLen() int {
	if r.view != nil {
		return r.view.bytes()
	}
	return bytesIn(r.vec)
}

// copyIn copies b to an offset of the user's buffer, up to its end.
func (r *request) copyIn(at int, b []byte) {
	if len(r.vec) == 1 && at+len(b) <= len(r.vec[0]) {
		wordcopy.Copy(r.vec[0][at:], b)
		return
	}
	if r.view != nil {
		if room := r.view.bytes() - at; room > 0 {
			r.view.Scatter(at, b[:min(len(b), room)])
		}
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

// bufferRange appends the bytes between two offsets of the user's buffer to list.
func (r *request) bufferRange(list [][]byte, from, to int) [][]byte {
	for _, e := range r.vec {
		if from < len(e) && to > 0 {
			list = append(list, e[max(from, 0):min(to, len(e))])
		}
		from, to = from-len(e), to-len(e)
	}
	return list
}

// token identifies the request in the rendezvous protocol; a token of an earlier use finds nothing.
func (r *request) token() uint64 { return uint64(r.gen)<<32 | uint64(r.index) }

// Requests is the pool of requests. It grows by chunks and never shrinks: its size is bounded by the largest
// number of operations that were under way at once. The engine's lock guards it.
type Requests struct {
	e    *Engine
	all  []*request // by index; made in chunks
	free *request

	// A send that completed when it began needs only a handle: that of a lightweight request, which has the
	// highest bit of the index set. All of these share one request.
	lightweight     []uint32 // generations
	freeLightweight []uint32
	completedSend   request // its generation, 0, is complete from the start
}

const lightweightBit = 1 << 31

const requestChunk = 256

func (p *Requests) get() *request {
	if p.free == nil {
		chunk := make([]request, requestChunk)
		for i := range chunk {
			r := &chunk[i]
			r.index = uint32(len(p.all))
			r.gen = 1
			r.posted.Value = r
			r.next, p.free = p.free, r
			p.all = append(p.all, r)
		}
	}
	r := p.free
	p.free, r.next = r.next, nil
	return r
}

// put returns a request to the pool; its handles and tokens match nothing from now on.
func (p *Requests) put(r *request) {
	r.gen++
	if r.gen == 0 {
		r.gen = 1
	}
	if r.kind == kindSend || r.observed || r.view != nil {
		p.forget(r)
	}
	r.operation = operation{}
	r.next, p.free = p.free, r
}

// forget resets the fields of a request that most receives do not use.
func (p *Requests) forget(r *request) {
	if r.view != nil {
		p.e.views.releaseLocked(r.view)
	}
	if r.kind == kindSend {
		r.msg = eager.Message{}
	}
	if r.observed {
		if p.e.Choices.decided != nil && r.kind == kindRecv && r.taken {
			p.e.hook.Tell(Event{Kind: EventCollected, Context: r.posted.Context, Peer: r.status.Source,
				Tag: r.status.Tag, Choice: r.choice})
		}
		r.relations = relations{}
	}
}

// newCompleted returns the handle of a send that is complete.
func (p *Requests) newCompleted() Request {
	last := len(p.freeLightweight) - 1
	if last < 0 {
		p.completedSend.kind = kindSend
		p.lightweight = append(p.lightweight, 1)
		p.freeLightweight = append(p.freeLightweight, uint32(len(p.lightweight)-1))
		last = 0
	}
	i := p.freeLightweight[last]
	p.freeLightweight = p.freeLightweight[:last]
	return Request{lightweightBit | i, p.lightweight[i]}
}

// find returns the request of a handle, nil if the handle is stale or invalid.
func (p *Requests) find(h Request) *request {
	if h.index&lightweightBit != 0 {
		if i := h.index &^ lightweightBit; int(i) < len(p.lightweight) && p.lightweight[i] == h.gen {
			return &p.completedSend
		}
		return nil
	}
	i := int(h.index) - 1
	if uint(i) >= uint(len(p.all)) {
		return nil
	}
	r := p.all[i]
	if r.gen != h.gen || r.kind == 0 {
		return nil
	}
	return r
}

// findAfterPass is find, with one pass if the request is not complete.
func (p *Requests) findAfterPass(h Request) (*request, error) {
	r := p.find(h)
	if r == nil {
		return nil, errUsed
	}
	if !r.completed() && p.e.stopped == nil {
		p.e.progress.poll()
	}
	return r, nil
}

// uncollected yields the requests for which the program could still wait.
func (p *Requests) uncollected() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for _, r := range p.all {
			if r.kind != 0 && !r.detached && !yield(r) {
				return
			}
		}
	}
}

// underWay yields the requests that are not complete. The loop may complete the current one, and begin
// others.
func (p *Requests) underWay() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for _, r := range p.all {
			if r.kind != 0 && !r.completed() && !yield(r) {
				return
			}
		}
	}
}

func (p *Requests) byToken(t uint64) *request {
	return p.find(Request{uint32(t) + 1, uint32(t >> 32)})
}

// release returns a completed request, or a lightweight one, to the pool.
func (p *Requests) release(h Request, r *request) {
	if r != &p.completedSend {
		p.put(r)
		return
	}
	i := h.index &^ lightweightBit
	p.lightweight[i]++
	p.freeLightweight = append(p.freeLightweight, i)
}
