package shm

// bounceBuffer is memory of ours out of which the peer copies what is too large for a frame. It is there
// while it is used. A piece is free again when the peer has carried out the frame that names it: so a payload
// needs no acknowledgement of its own, and the poster has its buffer back at once.
type bounceBuffer struct {
	memory    span
	next      int                  // piece
	tailAfter [bouncePieces]uint64 // of each piece: the ring's tail after the frame that names it
	used      bool                 // since the last Tick
	failed    bool                 // there was no memory
}

const (
	bouncePiece  = 16 << 10
	bouncePieces = 8
)

// piece tells how many of the next bytes of a payload go into one frame; false if there is no room now.
func (q *qp) piece(rest int) (n int, ok bool) {
	if rest <= framePayload || !q.hasBounceBuffer() {
		n = min(rest, framePayload)
		return n, !q.full(n)
	}
	if q.full(wordSize) {
		return 0, false
	}
	if tail := q.bounce.tailAfter[q.bounce.next]; int64(q.out.consumed-tail) < 0 {
		if q.out.loadConsumed(); int64(q.out.consumed-tail) < 0 {
			q.waits = true
			return 0, false
		}
	}
	return min(rest, bouncePiece), true
}

// hasBounceBuffer reports whether there is a bounce buffer, and makes one if there is memory.
func (q *qp) hasBounceBuffer() bool {
	s := &q.bounce
	if s.memory.n > 0 {
		return true
	}
	if s.failed {
		return false
	}
	m, err := q.dev.arena.alloc(bouncePiece * bouncePieces)
	if err != nil {
		s.failed = true // until the next Tick: then it is tried again
		return false
	}
	*s = bounceBuffer{memory: m}
	for i := range s.tailAfter {
		s.tailAfter[i] = q.out.consumed
	}
	return true
}

// beginFrame writes a frame's header and gives where its payload goes, in at most two pieces.
func (q *qp) beginFrame(h header) (first, second []byte) {
	if h.length <= framePayload {
		q.out.begin(h)
		return q.out.payload(h.length)
	}
	s := &q.bounce
	off := s.memory.off + int64(s.next)*bouncePiece
	h.flags |= flagBounced
	q.out.begin(h)
	q.out.word(uint64(off))
	s.tailAfter[s.next] = q.out.tail
	s.next = (s.next + 1) % bouncePieces
	s.used = true
	return q.dev.arena.mem[off:][:h.length], nil
}

// endFrame ends a frame whose payload stands where it goes.
func (q *qp) endFrame(n int) {
	if n <= framePayload {
		q.out.fill(n)
	}
	q.out.publish() // the peer can begin
}

// trimBounceBuffer gives a bounce buffer back that nobody needs. It is called with every Tick.
func (q *qp) trimBounceBuffer() {
	s := &q.bounce
	s.failed = false
	if s.memory.n > 0 && !s.used && q.out.done() {
		_ = q.dev.arena.put(s.memory, nil) // pages that stay are zeroed with the next use
		s.memory = span{}
	}
	s.used = false
}
