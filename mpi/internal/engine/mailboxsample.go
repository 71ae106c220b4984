package engine

import (
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// The set-up of mailboxes for long messages samples copies, as a rank may send no messages of which copies
// could be sampled. The mailboxes have only zeros then, and keep them. First each rank copies out of lines
// that its peer has written last. When it knows that its peer has done that too, it writes to them. Where
// that takes long, both are repeated, and the readers take over the lines.
//
// All lines of an area are sampled in one of these ways, as those of one page change how long the next takes.

// samplePiece is the number of bytes, a page, of which a copy is sampled.
const samplePiece = 4 << 10

// pieceSamples are samples of copies into and out of lines of pages.
type pieceSamples struct {
	in, out copySamples
	before  int64 // what in was before the lines were taken over
}

// copySamples are samples of copies of pages of one kind. Some lines may have come early by themselves, so
// the greatest of all windows counts, of each of which the least does.
type copySamples struct {
	window copycost.Samples
	each   int64 // of a KiB, in ticks
}

// note notes a copy of a page that began then.
func (s *copySamples) note(began int64) {
	if s.window.Note(copyTicks(began), samplePiece) {
		s.each = max(s.each, s.window.KiB())
	}
}

// samplesCopies reports whether the set-up samples copies.
func (m *Mailboxes) samplesCopies() bool { return m.takesPieces() && !m.fabric.pinsCosts() }

// clearLong clears memory in the same way as long messages are copied to it.
func clearLong(mem []byte) {
	zeros := make([]byte, samplePiece)
	for ; len(mem) > 0; mem = mem[min(len(mem), samplePiece):] {
		sys.CopyLong(mem, zeros)
	}
}

// sampleReadsLocked samples copies out of a peer's memory.
func (m *Mailboxes) sampleReadsLocked(b *mailbox) {
	m.e.mu.assertHeld()
	buf := make([]byte, samplePiece)
	segment := func(at, n int) *transport.Segment {
		m.segment[0] = transport.Segment{Key: b.key, Offset: b.mine + uint64(at), Length: uint64(n)}
		return &m.segment[0]
	}
	b.sampled = pieceSamples{before: b.sampled.in.each}
	qp := b.peer.ch.QP()
	for at := 0; at+samplePiece <= m.area; at += samplePiece {
		if qp.Get(buf[:1], segment(at, 1)) != nil { // so that the page is mapped
			return
		}
		piece, began := segment(at, samplePiece), sys.Ticks()
		if qp.Get(buf, piece) != nil {
			return
		}
		b.sampled.out.note(began)
		if m.takingOver && qp.Put(buf, piece) != nil {
			return
		}
	}
}

// measureLocked samples copies into this rank's memory, and sends its verdict: the access that the costs of
// copies between it and all others allow.
func (m *Mailboxes) measureLocked() (sent bool) {
	m.e.mu.assertHeld()
	access := QuickMapped
	for rank := range m.peers {
		if rank != m.rank {
			b := &m.peers[rank]
			m.sampleWritesLocked(b)
			c := &b.peer.copies
			access = access.with(accessBy(m.fabric.copyCosts(c.mapped, c.rewrite), m.longest))
		}
	}
	return m.sendVerdictLocked(mailboxesMeasuring, byte(access))
}

// sampleWritesLocked samples copies into this rank's memory, which a peer has read. What the copies take
// counts for messages, too.
func (m *Mailboxes) sampleWritesLocked(b *mailbox) {
	m.e.mu.assertHeld()
	s := &b.sampled
	if s.out.each == 0 {
		return
	}
	zeros := make([]byte, samplePiece)
	for at := 0; at+samplePiece <= m.area; at += samplePiece {
		began := sys.Ticks()
		sys.CopyLong(b.in[at:at+samplePiece], zeros)
		s.in.note(began)
	}
	clock := &m.e.hub.clock
	rewrite := clock.duration(s.in.each)
	if m.takingOver {
		taken := rewrite
		rewrite = clock.duration(s.before)
		b.writes.takeover.Measured(rewrite, taken)
		if !b.writes.takeover.Ask() {
			s.in.each = s.before
		}
	}
	if s.in.each > 0 {
		c := &b.peer.copies
		c.in.Samples, c.out = copycost.Known(s.in.each), copycost.Known(s.out.each)
		c.rewrite = max(1, rewrite)
		m.e.noteCosts(b.peer)
	}
}
