package verbs

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
)

// Piece is an element of a gather or scatter list, checked when it was posted.
type Piece struct {
	Region   *Region
	Key      transport.Key // of the registration: the region may have been given up since
	Off, Len int
}

// Alive reports whether the region is still registered.
func (p Piece) Alive() bool { return p.Region.Key() == p.Key }

// Viewed reports whether bytes of a request are not contiguous in its regions.
func (w *Request) Viewed() bool {
	for i := range w.Local {
		if w.Local[i].Region.View != nil {
			return true
		}
	}
	return false
}

// Span walks a list of pieces: the first stretch of memory at byte off of their sequence, at most n bytes
// long.
func Span(list []Piece, off, n int) (p *Piece, at, length int) {
	for i := range list {
		if off < list[i].Len {
			return &list[i], list[i].Off + off, min(n, list[i].Len-off)
		}
		off -= list[i].Len
	}
	return nil, 0, 0
}

// SegmentAt finds the segment that byte off of a list lies in, and the offset there.
func SegmentAt(list []transport.Segment, off int) (transport.Segment, uint64) {
	o := uint64(off)
	for _, s := range list {
		if o < s.Length {
			return s, o
		}
		o -= s.Length
	}
	return transport.Segment{}, 0
}

// appendPieces appends the elements of a list that have bytes.
func appendPieces(to []Piece, list []transport.SGE) []Piece {
	for i := range list {
		if s := &list[i]; s.Length > 0 {
			r := s.MR.(*Region)
			to = append(to, Piece{r, r.Key(), s.Offset, s.Length})
		}
	}
	return to
}

// Request is a send request in its queue.
type Request struct {
	ID     uint64
	Op     transport.Opcode
	Flags  transport.Flags
	Done   bool
	Asked  bool             // of a Read or an Atomic: the peer has been asked for it, and answers
	Ended  bool             // of one that is carried out at this end: it has been
	Access transport.Access // of a Bind
	Lane   transport.Lane   // of a Read: where its answer comes
	Failed transport.Status // with which it completes if the queue pair ends; 0: as all others
	Total  int              // bytes
	Sent   int              // of these, placed or handed to the fabric
	Got    int              // of a Read or an Atomic: bytes placed
	Begun  int              // of a Read: bytes of frames that have begun to come
	Number uint64           // of the untagged message, the Read or the Atomic
	Imm    uint64           // or an Atomic's operand
	Other  uint64           // a key, or what an Atomic compares with

	Local  []Piece // these three keep their memory from one use of the entry to the next
	Remote []transport.Segment
	Inline []byte

	window *Window // of a Bind
}

// Alive reports whether the regions that it names are all registered still.
func (w *Request) Alive() bool {
	for i := range w.Local {
		if !w.Local[i].Alive() {
			return false
		}
	}
	return true
}

// Asks reports whether the request is one that the peer answers.
func (w *Request) Asks() bool {
	return w.Op == transport.OpRead || w.Op == transport.OpFetchAdd || w.Op == transport.OpCompareSwap
}

// Here reports whether the request is carried out at this end.
func (w *Request) Here() bool { return w.Op == transport.OpBind || w.Op == transport.OpInvalidate }

// Solicited reports whether the request's Recv is worth an event.
func (w *Request) Solicited() bool { return w.Flags&transport.FlagSolicited != 0 }

// SendQueue is a ring of requests: Head is the oldest that is not complete, Tail the next to be posted.
// Memory grows with use.
type SendQueue struct {
	Head, Tail uint32

	ring        []Request
	nextMessage uint64 // number of the next message that uses a Recv of the peer
	nextRead    uint64 // of the next Read or Atomic
}

// At is a request by its place in the sequence of requests.
func (s *SendQueue) At(i uint32) *Request { return &s.ring[i&uint32(len(s.ring)-1)] }

// Len is how many requests are not complete.
func (s *SendQueue) Len() int { return int(s.Tail - s.Head) }

// Room makes room for one more, at Tail; false if the queue is as long as it may be.
func (s *SendQueue) Room(depth int) bool {
	n := s.Len()
	if n >= depth {
		return false
	}
	if n == len(s.ring) {
		s.ring = ring.Grow(s.ring, s.Head, s.Tail)
	}
	return true
}

// Post appends a request that has been checked and has so many bytes; false if the queue is as long as it may
// be.
func (s *SendQueue) Post(p *PD, b *Bindings, wr *transport.SendWR, total, depth int) bool {
	if !s.Room(depth) {
		return false
	}
	w := s.At(s.Tail)
	w.ID, w.Op, w.Flags, w.Total, w.Imm = wr.ID, wr.Op, wr.Flags, total, uint64(wr.Imm)
	w.Lane = wr.Lane
	w.Done, w.Asked, w.Ended, w.Failed, w.Sent, w.Got, w.Begun = false, false, false, 0, 0, 0, 0
	w.Local, w.Inline, w.Remote = w.Local[:0], w.Inline[:0], append(w.Remote[:0], wr.Remote...)
	if wr.Flags&transport.FlagInline != 0 {
		for _, e := range wr.Local {
			w.Inline = append(w.Inline, e.MR.(*Region).Mem[e.Offset:][:e.Length]...)
		}
	} else {
		w.Local = appendPieces(w.Local, wr.Local)
	}
	s.number(p, b, w, wr)
	s.Tail++
	return true
}

// number gives a request its number, and what else its kind has of its own.
func (s *SendQueue) number(p *PD, b *Bindings, w *Request, wr *transport.SendWR) {
	switch wr.Op {
	case transport.OpSend, transport.OpWriteImm:
		w.Number = s.nextMessage
		s.nextMessage++
	case transport.OpRead:
		w.Number = s.nextRead
		s.nextRead++
	case transport.OpFetchAdd, transport.OpCompareSwap:
		w.Number, w.Imm, w.Other = s.nextRead, wr.Operand, wr.Compare
		s.nextRead++
	case transport.OpBind:
		p.postBind(b, w, wr.Bind)
	case transport.OpInvalidate:
		w.Other = uint64(wr.Key)
	case transport.OpSendInvalidate:
		w.Number, w.Other = s.nextMessage, uint64(wr.Key)
		s.nextMessage++
	}
}

// Recv is a posted receive.
type Recv struct {
	ID     uint64
	Notify bool
	Total  int
	Local  []Piece // keeps its memory from one use of the entry to the next
}

// RecvQueue is a ring of posted receives: Head is the oldest, Tail the next to be posted.
type RecvQueue struct {
	Head, Tail uint32

	ring []Recv
}

// Front is the oldest posted receive; nil if there is none.
func (r *RecvQueue) Front() *Recv {
	if r.Head == r.Tail {
		return nil
	}
	return r.At(r.Head)
}

// At is a receive by its place in the sequence of receives.
func (r *RecvQueue) At(i uint32) *Recv { return &r.ring[i&uint32(len(r.ring)-1)] }

// Pop removes the oldest.
func (r *RecvQueue) Pop() { r.Head++ }

// Post appends a receive that has been checked; false if the queue is as long as it may be.
func (r *RecvQueue) Post(wr *transport.RecvWR, depth int) bool {
	n := int(r.Tail - r.Head)
	if n >= depth {
		return false
	}
	if n == len(r.ring) {
		r.ring = ring.Grow(r.ring, r.Head, r.Tail)
	}
	e := r.At(r.Tail)
	e.ID, e.Notify, e.Total = wr.ID, wr.Notify, 0
	e.Local = appendPieces(e.Local[:0], wr.Local)
	for i := range e.Local {
		e.Total += e.Local[i].Len
	}
	r.Tail++
	return true
}

// Completions is where a queue pair's requests complete.
type Completions interface {
	Push(transport.WC)
	Raise() // an event
}

// Flush completes what is posted: the oldest send request with the status of the failure, all others flushed,
// in order. What is done after a request that is not is flushed too: nothing succeeds after a failure.
// flushed makes a completion.
func Flush(sq *SendQueue, rq *RecvQueue, send, recv Completions, first transport.Status,
	flushed func(id uint64, op transport.Opcode) transport.WC) {
	for sq.Head != sq.Tail {
		w := sq.At(sq.Head)
		wc := flushed(w.ID, w.Op)
		wc.Status = first
		if w.Failed != 0 {
			wc.Status = w.Failed
		}
		first = transport.StatusFlushed
		send.Push(wc)
		if w.Flags&transport.FlagNotify != 0 {
			send.Raise()
		}
		sq.Head++
	}
	for r := rq.Front(); r != nil; r = rq.Front() {
		recv.Push(flushed(r.ID, transport.OpRecv))
		if r.Notify {
			recv.Raise()
		}
		rq.Pop()
	}
}
