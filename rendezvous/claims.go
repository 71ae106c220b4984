package rendezvous

import (
	"sync/atomic"
	"unsafe"
)

// claims is how the two ends of a channel share the copying of a long message (docs/adr/0070): memory of the
// sender, which the receiver has mapped. It is for one part of one message at a time. The receiver begins a
// turn for it, claims pages from its front on, and reads them; a sender that has nothing else to do claims
// pages from its back on, and writes them. So every page is copied by the end that has claimed it, and the
// receiver waits for nothing but what the sender has claimed.
//
// The fields that tell of the part are the receiver's, and change only while no page can be claimed: who
// claims a page after reading them has read those of the same turn.
type claims struct {
	id     uint64 // of the announcement
	key    uint64 // of the receiver's memory, in which the whole message has its place
	at     uint64 // position of the part in its message
	length uint64 // of the part, in bytes
	_      [4]uint64

	state uint64 // the turn, and the pages that the receiver and the sender have claimed
	_     [7]uint64

	copied uint64 // by the sender: the turn, and how many of its pages are copied, or why not
	_      [7]uint64
}

const (
	claimsSize = 256 // room for claims, in whole pairs of lines
	claimsPage = 4 << 10
	// The longest part. It is far from what the counts of pages can hold.
	claimsPart = 4 << 20
	// bytes of a message from which sharing gains more than it costs
	claimsMin = 64 << 10

	claimsClosed  = 1<<16 - 1 // more pages than any part has
	claimsRefused = 1 << 31   // the sender has pages that it does not copy
	claimsNever   = 1 << 30   // since it cannot write there
)

var _ [claimsSize - unsafe.Sizeof(claims{})]struct{}

// How many pages are claimed at a time: a copy has a cost before its first byte, as much as that of some 20
// KiB; and at the end one side waits for the other's last piece.
const (
	claimsLeast = 8
	claimsMost  = 64
)

// claimsIn are the claims in some memory; nil if it is none for them.
func claimsIn(mem []byte) *claims {
	if len(mem) < claimsSize || uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%8 != 0 {
		return nil
	}
	return (*claims)(unsafe.Pointer(unsafe.SliceData(mem)))
}

func pagesOf(n uint64) uint64 { return (n + claimsPage - 1) / claimsPage }

// turn is the state of claims: how many pages of the present part each end has claimed.
type turn struct{ number, front, back uint64 }

func turnOf(word uint64) turn { return turn{word >> 32, word >> 16 & 0xffff, word & 0xffff} }

func (t turn) word() uint64 { return t.number<<32 | t.front<<16 | t.back }

// share is how many pages of those that are left are claimed at once, while both ends copy.
func share(left uint64) uint64 {
	if left <= claimsLeast*3/2 {
		return left
	}
	return min(max((left+1)/2, claimsLeast), claimsMost)
}

// firstShare is how many pages of a part the receiver claims before the sender knows of it: half of a short
// part, of which the sender's first share is the other half.
func firstShare(pages uint64) uint64 { return min((pages+1)/2, claimsMost) }

// begin begins a turn, with the first pages claimed for the receiver, and tells how many. The turn before has
// to be over: all its pages are claimed, and copied.
func (c *claims) begin(number uint32, id, key, at, length uint64) (first uint64) {
	// who has seen the turn before cannot claim by it what the fields say of this one
	atomic.StoreUint64(&c.state, turn{uint64(number), claimsClosed, 0}.word())
	atomic.StoreUint64(&c.id, id)
	atomic.StoreUint64(&c.key, key)
	atomic.StoreUint64(&c.at, at)
	atomic.StoreUint64(&c.length, length)
	first = firstShare(pagesOf(length))
	atomic.StoreUint64(&c.state, turn{uint64(number), first, 0}.word())
	return first
}

// claimFront claims the receiver's next pages of those of a part, and tells how many: all that are left if
// the sender has claimed none so far, or with all. The receiver has claimed front pages so far; sane is false
// if the state says otherwise, which only a peer that breaks the rules can have written.
func (c *claims) claimFront(number uint32, front, pages uint64, all bool) (n uint64, sane bool) {
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

// copiedIn tells how many of its pages the sender has copied in a turn, whether it leaves some, and whether
// it always will.
func (c *claims) copiedIn(number uint32) (pages uint64, refused, never bool) {
	w := atomic.LoadUint64(&c.copied)
	if w>>32 != uint64(number) {
		return 0, false, false
	}
	return w & 0xffff, w&claimsRefused != 0, w&claimsNever != 0
}

// offer is what the receiver offers the sender to copy.
type offer struct {
	turn
	word       uint64 // of the state
	id, key    uint64
	at, length uint64
}

// look reads what the receiver offers. It counts only if claimBack succeeds.
func (c *claims) look() offer {
	w := atomic.LoadUint64(&c.state)
	return offer{turn: turnOf(w), word: w, id: atomic.LoadUint64(&c.id), key: atomic.LoadUint64(&c.key),
		at: atomic.LoadUint64(&c.at), length: atomic.LoadUint64(&c.length)}
}

// claimBack claims pages for the sender, and tells which part of the message they are: n bytes from position
// at on. 0 means that others were quicker.
func (c *claims) claimBack(o *offer) (at, n uint64) {
	end := pagesOf(o.length) - o.back
	pages := share(end - o.front)
	if o.back == 0 {
		pages = min(end-o.front, claimsMost)
	}
	o.back += pages
	if !atomic.CompareAndSwapUint64(&c.state, o.word, o.turn.word()) {
		return 0, 0
	}
	first := (end - pages) * claimsPage
	return o.at + first, min(end*claimsPage, o.length) - first
}

// done notes that the sender has copied the pages up to those of an offer it has claimed.
func (c *claims) done(o *offer) { atomic.StoreUint64(&c.copied, o.number<<32|o.back) }

// refuse notes that it does not copy them, and claims no more in this turn.
func (c *claims) refuse(o *offer, never bool) {
	w := o.number<<32 | claimsRefused
	if never {
		w |= claimsNever
	}
	atomic.StoreUint64(&c.copied, w)
}
