package engine

import (
	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/sys"
	"github.com/weft-mpi/weft/transport"
)

// The set-up of mailboxes for long messages samples copies, as a rank may send no messages of which copies
// could be sampled. The mailboxes have only zeros then, and keep them. First each rank copies out of lines
// that its peer has written last, and takes over those of every other page: it writes to them. When it knows
// that its peer has done that too, it writes to all those lines. On some processors that takes five times as
// long where the peer has only read them.

// samplePiece is the number of bytes, a page, of which a copy is sampled.
const samplePiece = 4 << 10

// pieceSamples are samples of copies into and out of lines of pages.
type pieceSamples struct{ in, out copySamples }

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

// total returns what both copies of a KiB take, in ticks.
func (s *pieceSamples) total() int64 { return s.in.each + s.out.each }

// pageKind is the index of the samples of a page in mailbox.sampled: 1 if its lines are taken over.
func pageKind(at int) int { return at / samplePiece % 2 }

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
	b.sampled = new([2]pieceSamples)
	qp := b.peer.ch.QP()
	for at := 0; at+samplePiece <= m.area; at += samplePiece {
		if qp.Get(buf[:1], segment(at, 1)) != nil { // so that the page is mapped
			return
		}
		kind, piece, began := pageKind(at), segment(at, samplePiece), sys.Ticks()
		if qp.Get(buf, piece) != nil || kind == 1 && qp.Put(buf, piece) != nil {
			return
		}
		b.sampled[kind].out.note(began)
	}
}

// measureLocked samples copies into this rank's memory, and returns its verdict: the access that the costs of
// copies between it and all others allow, and whether they are to take over lines.
func (m *Mailboxes) measureLocked() (verdict byte) {
	m.e.mu.assertHeld()
	access, takeover := QuickMapped, byte(0)
	for rank := range m.peers {
		if rank == m.rank {
			continue
		}
		b := &m.peers[rank]
		if b.sampled != nil && m.sampleWritesLocked(b) {
			takeover = verdictTakeover
		}
		access = min(access, accessBy(m.fabric.copyCosts(b.peer.copies.mapped), m.longest))
	}
	return byte(access) | takeover
}

// takeoverTotal is at most how long both copies may take if the receiver takes over lines, in per cent of
// what they take otherwise.
const takeoverTotal = 80

// sampleWritesLocked samples copies into this rank's memory, which a peer has read, and reports whether the
// peer is to take over lines. What the copies take then, or otherwise, counts for messages, too. Nobody takes
// over lines of the stage.
func (m *Mailboxes) sampleWritesLocked(b *mailbox) (takeover bool) {
	m.e.mu.assertHeld()
	zeros, s := make([]byte, samplePiece), b.sampled
	b.sampled = nil
	for at := 0; at+samplePiece <= m.area; at += samplePiece {
		began := sys.Ticks()
		sys.CopyLong(b.in[at:at+samplePiece], zeros)
		s[pageKind(at)].in.note(began)
	}
	kind := 0
	if t := s[1].total(); t > 0 && t*100 <= s[0].total()*takeoverTotal {
		kind = 1
	}
	if s[kind].total() > 0 {
		c := &b.peer.copies
		c.in, c.out = copycost.Known(s[kind].in.each), copycost.Known(s[kind].out.each)
		m.e.noteCosts(b.peer)
		m.e.mappedKiB.Store(int64(m.e.hub.clock.duration(max(1, s[0].total()))))
	}
	return kind == 1
}
