// Package sharedcopy lets the two ends of a long copy between ranks of a host share the work
// (docs/internals/adr/0070). It decides which end copies which pages; it moves no bytes itself.
package sharedcopy

import (
	"sync/atomic"
	"unsafe"
)

// Claims is a work-claim table in memory of the helper, which the other end, the leader, has mapped. It is
// used for one part of one transfer at a time. The leader begins a turn for the part, and claims and copies
// pages from its front. A helper without other work claims and copies pages from its back. So every page is
// copied by the end that has claimed it, and the leader waits only for pages that the helper has claimed.
//
// The leader writes the fields of the part, only while no page can be claimed: an end that claims a page
// after reading them has read those of the same turn.
type Claims struct {
	id     uint64
	key    uint64
	at     uint64
	length uint64
	_      [4]uint64

	state uint64 // the turn, and the pages that the leader and the helper have claimed
	_     [7]uint64

	copied uint64 // by the helper: the turn, and how many of its pages are copied, or why not
	_      [7]uint64
}

// Part is the part of a transfer that a turn copies.
type Part struct {
	ID     uint64 // of the transfer
	Key    uint64 // of the leader's memory for it
	At     uint64 // position of the part in the helper's memory for it
	Length uint64 // in bytes; MaxPart at most
}

// Within reports whether the part lies in the first n bytes of the helper's memory.
func (p *Part) Within(n uint64) bool { return p.At <= n && p.Length <= n-p.At }

const (
	Size = 256     // room for Claims, in whole pairs of lines
	Page = 4 << 10 // unit of claims
	// The longest part, far below the limit of the counts of pages.
	MaxPart = 4 << 20
	// size of a transfer from which sharing gains more than it costs
	Min = 64 << 10

	closed  = 1<<16 - 1 // more pages than any part has
	refused = 1 << 31   // the helper has pages that it does not copy
	never   = 1 << 30   // since it cannot write there
)

var _ [Size - unsafe.Sizeof(Claims{})]struct{}

// Pages that are claimed at a time. A copy has a cost before its first byte, as much as copying some 20 KiB;
// and at the end one side waits for the other's last claim.
const (
	leastShare  = 8
	mostShare   = 64
	noticePages = 2 // half a microsecond
)

// In returns the claims in memory; nil if it is too small, or not aligned.
func In(mem []byte) *Claims {
	if len(mem) < Size || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil
	}
	return (*Claims)(unsafe.Pointer(unsafe.SliceData(mem)))
}

// pagesOf returns the number of pages of n bytes.
func pagesOf(n uint64) uint64 { return (n + Page - 1) / Page }

// turn is the state of claims: how many pages of the present part each end has claimed.
type turn struct{ number, front, back uint64 }

func turnOf(word uint64) turn { return turn{word >> 32, word >> 16 & 0xffff, word & 0xffff} }

func (t turn) word() uint64 { return t.number<<32 | t.front<<16 | t.back }

// share returns how many of the remaining pages are claimed at once, while both ends copy.
func share(left uint64) uint64 {
	if left <= leastShare*3/2 {
		return left
	}
	return min(max((left+1)/2, leastShare), mostShare)
}

// firstShare returns the number of pages of a part that the leader claims before the helper knows of it: half
// of a short part, of which the helper's first share is the rest, plus the pages copied until the helper sees
// it.
func firstShare(pages uint64) uint64 { return min(pages/2+noticePages, pages, mostShare) }

// begin begins a turn, with the first pages claimed for the leader, and returns how many. The previous turn
// must be over: all its pages are claimed and copied.
func (c *Claims) begin(number uint32, p *Part) (first uint64) {
	// an end that has read the previous turn cannot claim pages of this one with it
	atomic.StoreUint64(&c.state, turn{uint64(number), closed, 0}.word())
	atomic.StoreUint64(&c.id, p.ID)
	atomic.StoreUint64(&c.key, p.Key)
	atomic.StoreUint64(&c.at, p.At)
	atomic.StoreUint64(&c.length, p.Length)
	first = firstShare(pagesOf(p.Length))
	atomic.StoreUint64(&c.state, turn{uint64(number), first, 0}.word())
	return first
}

// claimFront claims the leader's next pages of a part, and returns how many: all remaining ones if the helper
// has claimed none so far, or with all. The leader has claimed front pages so far; sane is false if the state
// says otherwise, which only a peer that breaks the rules can have written.
func (c *Claims) claimFront(number uint32, front, pages uint64, all bool) (n uint64, sane bool) {
	for {
		w := atomic.LoadUint64(&c.state)
		t := turnOf(w)
		if t.number != uint64(number) || t.front != front || t.front+t.back > pages {
			return 0, false
		}
		if n = pages - t.front - t.back; n == 0 {
			return 0, true
		}
		if !all && t.back > 0 {
			n = share(n)
		}
		t.front += n
		if atomic.CompareAndSwapUint64(&c.state, w, t.word()) {
			return n, true
		}
	}
}

// copiedIn returns how many of its pages the helper has copied in a turn, and whether it refuses some, in
// this turn or always.
func (c *Claims) copiedIn(number uint32) (pages uint64, refuses, always bool) {
	w := atomic.LoadUint64(&c.copied)
	if w>>32 != uint64(number) {
		return 0, false, false
	}
	return w & 0xffff, w&refused != 0, w&never != 0
}
