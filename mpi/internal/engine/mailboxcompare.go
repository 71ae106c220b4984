package engine

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync/atomic"
)

// Comparison has a call through mailboxes begin with a comparison: its rank writes a word to its neighbors,
// and receives nothing before their words have come and are the same. It is for checking mode.
//
// The word of a later call stands for an equal one: a neighbor goes on when it has found the words equal
// itself, or has given the call up. One whose word differs fails, and its next call leaves that word where it
// is: calls use two places in turn.
//
// A neighbor whose call does not go through mailboxes, or that has given it up before it knew that, sends its
// digest in a message.
type Comparison struct {
	Digest  uint64 // of the call; the word is made of it
	Peers   [2]int // ranks of the communicator
	N       int    // how many there are
	Context uint32 // of the messages
	Tag     int

	untold uint8 // neighbors that have not been told, a bit for each
	open   uint8 // of whom it is not known what they call
	// Differing are the neighbors whose words differ, and ByMessage those whose messages do.
	Differing, ByMessage uint8
}

// ErrDiffers is the error of a call whose comparison has found a difference.
var ErrDiffers = fmt.Errorf("%w: a neighbor's call differs", ErrCollective)

// Open are the neighbors of whom it is not known what they call.
func (x *Comparison) Open() uint8 { return x.open }

func (x *Comparison) word() uint32 { return uint32(x.Digest ^ x.Digest>>32) }

func (x *Comparison) begin() {
	x.open = 1<<x.N - 1
	x.untold, x.Differing, x.ByMessage = x.open, 0, 0
}

// comparing tells whether words are still to be written, or to come.
func (c *Collective) comparing() bool {
	return c.Comparison != nil && c.Comparison.open|c.Comparison.untold != 0
}

// comparedAt is where the word of the present call ends, in a sender's part.
func (m *Mailboxes) comparedAt() int { return int(m.call%2+1) * mailboxWord }

// compareLocked tells neighbors this rank's word, and looks for theirs.
func (m *Mailboxes) compareLocked(x *Comparison) error {
	m.e.mu.assertHeld()
	for i := range x.N {
		b := &m.peers[x.Peers[i]]
		if x.untold>>i&1 != 0 && m.writeLocked(b, m.comparedAt()-mailboxWord, mailboxWord, nil, nil,
			uint64(x.word())<<32|m.call&(1<<32-1)) {
			x.untold &^= 1 << i
		}
		if x.open>>i&1 == 0 {
			continue
		}
		word := atomic.LoadUint64(wordAt(b.in, m.comparedAt()))
		ahead := int32(uint32(word) - uint32(m.call))
		if ahead < 0 {
			continue
		}
		if x.open &^= 1 << i; ahead == 0 && uint32(word>>32) != x.word() {
			x.Differing |= 1 << i
		}
	}
	if x.Differing != 0 && x.untold == 0 {
		return ErrDiffers
	}
	return nil
}

// comparedWord is where the next word of a neighbor comes.
func (m *Mailboxes) comparedWord(x *Comparison) *uint64 {
	next := x.Peers[bits.TrailingZeros8(x.open|1<<(x.N-1))]
	return wordAt(m.peers[next].in, m.comparedAt())
}

// compareMessagesLocked looks for digests that have come by message, from one neighbor or from all. It
// returns ErrDiffers if one is of another call.
func (cs *collectives) compareMessagesLocked(c *Collective, source int) error {
	cs.e.mu.assertHeld()
	if !c.comparing() {
		return nil
	}
	x := c.Comparison
	for i, p := range x.Peers[:x.N] {
		from := c.worldRank(p)
		if x.open>>i&1 == 0 || source != from && source != AnySource {
			continue
		}
		m := cs.e.matching.Probe(x.Context, int32(from), int32(x.Tag))
		switch {
		case m == nil:
		case m.Value.isWord(x.Digest):
			x.open, x.untold = x.open&^(1<<i), x.untold&^(1<<i)
			cs.e.matching.RemoveUnexpected(m)
			cs.e.unexpected.discard(m.Value)
		default:
			x.ByMessage |= 1 << i
		}
	}
	if x.ByMessage != 0 {
		return ErrDiffers
	}
	return nil
}

// isWord tells whether a message is just this word, and here.
func (a *unexpectedMessage) isWord(w uint64) bool {
	return len(a.parts) == 1 && !a.parts[0].announced && len(a.parts[0].payload) == 8 &&
		binary.NativeEndian.Uint64(a.parts[0].payload) == w
}
