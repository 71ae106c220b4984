package verbs

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
	"github.com/weft-mpi/weft/transport/internal/violation"
)

// Piece is an SGE that was checked when it was posted.
type Piece struct {
	Region   *Region
	Key      transport.Key // of the registration: the region may have been deregistered since
	Off, Len int
}

// Alive reports whether the region is still registered.
func (p Piece) Alive() bool { return p.Region.Key() == p.Key }

// Viewed reports whether the request uses a region that is a view.
func (w *Request) Viewed() bool {
	for i := range w.Local {
		if w.Local[i].Region.View != nil {
			return true
		}
	}
	return false
}

// Span returns the first contiguous memory at byte off of a list of pieces, at most n bytes long: the piece,
// the offset in its region, and the length.
func Span(list []Piece, off, n int) (p *Piece, at, length int) {
	for i := range list {
		if off < list[i].Len {
			return &list[i], list[i].Off + off, min(n, list[i].Len-off)
		}
		off -= list[i].Len
	}
	return nil, 0, 0
}

// SegmentAt returns the segment that contains byte off of a list, and the offset in it.
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

// appendPieces appends the elements of a list that are not empty.
func appendPieces(to []Piece, list []transport.SGE) []Piece {
	for i := range list {
		if s := &list[i]; s.Length > 0 {
			r := s.MR.(*Region)
			to = append(to, Piece{r, r.Key(), s.Offset, s.Length})
		}
	}
	return to
}

// Request is a request in the send queue.
type Request struct {
	ID     uint64
	Op     transport.Opcode
	Flags  transport.Flags
	Done   bool
	Asked  bool             // Read, Atomic: requested from the peer, which answers
	Lane   transport.Lane   // Read: the lane for the answer
	Failed transport.Status // the status if the queue pair ends; 0: as for all others
	Total  int              // bytes
	Sent   int              // of these, placed or sent
	Got    int              // Read, Atomic: bytes placed
	Begun  int              // Read: bytes of frames whose headers were received
	Number uint64           // of the untagged message, the Read or the Atomic
	Imm    uint64           // immediate, or an Atomic's operand

	Local  []Piece // these three keep their memory from one use of the entry to the next
	Remote []transport.Segment
	Inline []byte
}

// Alive reports whether all regions of the request are still registered.
func (w *Request) Alive() bool {
	for i := range w.Local {
		if !w.Local[i].Alive() {
			return false
		}
	}
	return true
}

// Asks reports whether the peer answers the request: a Read or an Atomic.
func (w *Request) Asks() bool {
	return w.Op == transport.OpRead || w.Op == transport.OpFetchAdd
}

// Solicited reports whether the completion of the request's Recv raises a solicited event.
func (w *Request) Solicited() bool { return w.Flags&transport.FlagSolicited != 0 }

// SendQueue is a circular queue of requests: Head is the oldest that is not complete, Tail the next to be
// posted. It grows on demand.
type SendQueue struct {
	Head, Tail uint32

	ring        []Request
	nextMessage uint64 // number of the next message that uses a Recv of the peer
	nextRead    uint64 // of the next Read or Atomic
}

// At returns a request by its index in the sequence of requests.
func (s *SendQueue) At(i uint32) *Request { return &s.ring[i&uint32(len(s.ring)-1)] }

// Len returns the number of requests that are not complete.
func (s *SendQueue) Len() int { return int(s.Tail - s.Head) }

// Room makes room for a request at Tail; false if the queue has reached depth.
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

// Post appends a request that has been checked, with total bytes; false if the queue has reached depth.
func (s *SendQueue) Post(wr *transport.SendWR, total, depth int) bool {
	if !s.Room(depth) {
		return false
	}
	w := s.At(s.Tail)
	w.ID, w.Op, w.Flags, w.Total, w.Imm = wr.ID, wr.Op, wr.Flags, total, uint64(wr.Imm)
	w.Lane = wr.Lane
	w.Done, w.Asked, w.Failed, w.Sent, w.Got, w.Begun = false, false, 0, 0, 0, 0
	w.Local, w.Inline, w.Remote = w.Local[:0], w.Inline[:0], append(w.Remote[:0], wr.Remote...)
	if wr.Flags&transport.FlagInline != 0 {
		for _, e := range wr.Local {
			w.Inline = append(w.Inline, e.MR.(*Region).Mem[e.Offset:][:e.Length]...)
		}
	} else {
		w.Local = appendPieces(w.Local, wr.Local)
	}
	s.number(w, wr)
	s.Tail++
	return true
}

// number assigns a request's number, and sets the fields of its opcode.
func (s *SendQueue) number(w *Request, wr *transport.SendWR) {
	switch wr.Op {
	case transport.OpSend, transport.OpWriteImm:
		w.Number = s.nextMessage
		s.nextMessage++
	case transport.OpRead:
		w.Number = s.nextRead
		s.nextRead++
	case transport.OpFetchAdd:
		w.Number, w.Imm = s.nextRead, wr.Operand
		s.nextRead++
	}
}

// Recv is a posted receive.
type Recv struct {
	ID     uint64
	Notify bool
	Total  int
	Local  []Piece // keeps its memory from one use of the entry to the next
}

// Place copies bytes into the receive's memory, from an offset on, which they must fit.
func (e *Recv) Place(off int, b []byte) error {
	for len(b) > 0 {
		p, at, n := Span(e.Local, off, len(b))
		if !p.Alive() {
			return violation.ErrRecvGone
		}
		copy(p.Region.Mem[at:at+n], b)
		b, off = b[n:], off+n
	}
	return nil
}

// RecvQueue is a circular queue of posted receives: Head is the oldest, Tail the next to be posted.
type RecvQueue struct {
	Head, Tail uint32

	ring []Recv
}

// Front returns the oldest posted receive; nil if there is none.
func (r *RecvQueue) Front() *Recv {
	if r.Head == r.Tail {
		return nil
	}
	return r.At(r.Head)
}

// At returns a receive by its index in the sequence of receives.
func (r *RecvQueue) At(i uint32) *Recv { return &r.ring[i&uint32(len(r.ring)-1)] }

// Pop removes the oldest receive.
func (r *RecvQueue) Pop() { r.Head++ }

// Post appends a receive that has been checked; false if the queue has reached depth.
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
