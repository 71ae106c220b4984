package shm

// bounceBuffer is memory of this end from which the peer copies payloads that are too large for a frame. It
// exists only while it is used, and has several slots, each for one payload. A slot is free again when the
// peer has consumed the frame that names it, so a payload needs no acknowledgement of its own, and the poster
// has its buffer back at once.
type bounceBuffer struct {
	memory    span
	next      int                  // slot
	tailAfter [bouncePieces]uint64 // by slot: the ring's tail after the frame that names it
	used      bool                 // since the last Tick
	failed    bool                 // allocation failed
}

const (
	bouncePiece  = 16 << 10
	bouncePieces = 8
)

// frameWriter writes frames for the peer: into the ring, with a long payload in the bounce buffer.
type frameWriter struct {
	outRing
	bounce bounceBuffer
	arena  *arena // this device's
	waits  bool   // for the peer to consume frames
}

// full reports whether there is no room for a frame with n bytes of payload; then the peer notifies when
// there is.
func (w *frameWriter) full(n int) bool {
	if w.room(n) {
		return false
	}
	w.waits = true
	return true
}

// piece returns how many of the next bytes of a payload fit one frame; false if there is no room now.
func (w *frameWriter) piece(rest int) (n int, ok bool) {
	if rest <= framePayload || !w.hasBounceBuffer() {
		n = min(rest, framePayload)
		return n, !w.full(n)
	}
	if w.full(wordSize) {
		return 0, false
	}
	if tail := w.bounce.tailAfter[w.bounce.next]; int64(w.consumed-tail) < 0 {
		if w.loadConsumed(); int64(w.consumed-tail) < 0 {
			w.waits = true
			return 0, false
		}
	}
	return min(rest, bouncePiece), true
}

// hasBounceBuffer reports whether there is a bounce buffer. It allocates one if there is memory.
func (w *frameWriter) hasBounceBuffer() bool {
	s := &w.bounce
	if s.memory.n > 0 {
		return true
	}
	if s.failed {
		return false
	}
	m, err := w.arena.alloc(bouncePiece * bouncePieces)
	if err != nil {
		s.failed = true // until the next Tick
		return false
	}
	*s = bounceBuffer{memory: m}
	for i := range s.tailAfter {
		s.tailAfter[i] = w.consumed
	}
	return true
}

// beginFrame writes a frame's header and returns the memory for its payload, in at most two parts.
func (w *frameWriter) beginFrame(h header) (first, second []byte) {
	if h.length <= framePayload {
		w.begin(h)
		return w.payload(h.length)
	}
	s := &w.bounce
	off := s.memory.off + int64(s.next)*bouncePiece
	h.flags |= flagBounced
	w.begin(h)
	w.word(uint64(off))
	s.tailAfter[s.next] = w.tail
	s.next = (s.next + 1) % bouncePieces
	s.used = true
	return w.arena.mem[off:][:h.length], nil
}

// endFrame ends a frame whose payload has been filled in.
func (w *frameWriter) endFrame(n int) {
	if n <= framePayload {
		w.fill(n)
	}
	w.publish() // the peer can begin
}

// trim frees an unused bounce buffer. It is called with every Tick.
func (w *frameWriter) trim() {
	s := &w.bounce
	s.failed = false
	if s.memory.n > 0 && !s.used && w.done() {
		_ = w.arena.put(s.memory, nil) // pages that stay are zeroed when reused
		s.memory = span{}
	}
	s.used = false
}
