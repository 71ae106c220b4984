package shm

import (
	"github.com/weft-mpi/weft/transport"
	"github.com/weft-mpi/weft/transport/internal/ring"
)

// piece is an element of a gather or scatter list, checked when it was posted.
type piece struct {
	r      *region
	key    transport.Key // of the registration: the region may have been given up since
	off, n int
}

func (p piece) alive() bool { return p.r.Key() == p.key }

// wqe is a send request in its queue.
type wqe struct {
	id     uint64
	op     transport.Opcode
	flags  transport.Flags
	done   bool
	asked  bool             // of a Read or an Atomic: the peer has been asked for it, and answers
	access transport.Access // of a Bind
	failed transport.Status // of the one that ended the queue pair
	total  int              // bytes
	sent   int              // of these, placed or in the ring
	got    int              // of a Read or an Atomic: bytes placed
	number uint64           // of the untagged message, the Read or the Atomic
	imm    uint64           // or an Atomic's operand
	other  uint64           // a key, or what an Atomic compares with
	window *window          // of a Bind
	local  []piece          // these three keep their memory from one use of the entry to the next
	remote []transport.Segment
	inline []byte
}

// alive tells whether the regions that it names are all registered still.
func (w *wqe) alive() bool {
	for i := range w.local {
		if !w.local[i].alive() {
			return false
		}
	}
	return true
}

// sendQueue is a ring of requests: head is the oldest that is not complete, tail the next to be posted. Memory grows with use.
type sendQueue struct {
	ring       []wqe
	head, tail uint32
}

func (s *sendQueue) at(i uint32) *wqe { return &s.ring[i&uint32(len(s.ring)-1)] }

func (s *sendQueue) len() int { return int(s.tail - s.head) }

// room makes place for one more.
func (s *sendQueue) room(depth int) bool {
	n := s.len()
	if n >= depth {
		return false
	}
	if n == len(s.ring) {
		s.ring = ring.Grow(s.ring, s.head, s.tail)
	}
	return true
}

// rqe is a posted receive.
type rqe struct {
	id     uint64
	notify bool
	total  int
	local  []piece // keeps its memory from one use of the entry to the next
}

// recvQueue is a ring of posted receives.
type recvQueue struct {
	ring       []rqe
	head, tail uint32
}

func (r *recvQueue) at(i uint32) *rqe { return &r.ring[i&uint32(len(r.ring)-1)] }

func (r *recvQueue) front() *rqe {
	if r.head == r.tail {
		return nil
	}
	return r.at(r.head)
}

func (r *recvQueue) pop() { r.head++ }

func (r *recvQueue) push(wr *transport.RecvWR, depth int) bool {
	n := int(r.tail - r.head)
	if n >= depth {
		return false
	}
	if n == len(r.ring) {
		r.ring = ring.Grow(r.ring, r.head, r.tail)
	}
	e := r.at(r.tail)
	e.id, e.notify, e.total, e.local = wr.ID, wr.Notify, 0, e.local[:0]
	for _, s := range wr.Local {
		if s.Length == 0 {
			continue
		}
		m := s.MR.(*region)
		e.local = append(e.local, piece{m, m.Key(), s.Offset, s.Length})
		e.total += s.Length
	}
	r.tail++
	return true
}

// answer is a Read of the peer that is being answered, or an Atomic that has been carried out.
type answer struct {
	number   uint64
	atomic   bool
	original uint64 // of an Atomic: the word as it was
	total    int
	sent     int // of total
	src      [maxSegments]transport.Segment
	nsrc     int
	refused  error // what is wrong with it; said in its turn, so that earlier Reads complete
}

// answerQueue is a ring of them. The peer may have only so many outstanding: more is a violation.
type answerQueue struct {
	ring       []answer
	head, tail uint32
}

func (a *answerQueue) at(i uint32) *answer { return &a.ring[i&uint32(len(a.ring)-1)] }

func (a *answerQueue) push() *answer {
	if int(a.tail-a.head) == len(a.ring) {
		a.ring = ring.Grow(a.ring, a.head, a.tail)
	}
	a.tail++
	return a.at(a.tail - 1)
}

// stretch walks a list of pieces: the first stretch of memory at byte off of their sequence, at most n bytes long.
func stretch(list []piece, off, n int) (p *piece, at, length int) {
	for i := range list {
		if off < list[i].n {
			return &list[i], list[i].off + off, min(n, list[i].n-off)
		}
		off -= list[i].n
	}
	return nil, 0, 0
}
