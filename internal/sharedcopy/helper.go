package sharedcopy

import "sync/atomic"

// Helper is the end that copies a share of a leader's transfer. The zero Helper copies nothing.
type Helper struct {
	Claims  *Claims // nil until a leader has them
	over    uint64  // their state when nothing was left to copy
	refused uint64  // the turn in which a copy failed
}

// Offer is a part that a leader offers its helper.
type Offer struct {
	turn
	word uint64 // of the state
	Part
}

// Due reports whether a leader may have something to copy.
func (h *Helper) Due() bool { return h.Claims != nil && atomic.LoadUint64(&h.Claims.state) != h.over }

// Next returns a part with unclaimed pages; false if there is none. Call it if Due.
func (h *Helper) Next() (o Offer, ok bool) {
	if o = h.Claims.look(); o.number == h.refused {
		return o, false
	}
	if !o.open() {
		h.Ignore(&o)
		return o, false
	}
	return o, true
}

// Ignore leaves an offer to its leader, because this end does not have such a part.
func (h *Helper) Ignore(o *Offer) { h.over = o.word }

// Claim claims pages of an offer, and returns them: n bytes of the part, from a position on. 0 means that the
// leader has claimed all.
func (h *Helper) Claim(o *Offer) (from, n uint64) { return h.Claims.claimBack(o) }

// Copied notes that the claimed pages of an offer are copied.
func (h *Helper) Copied(o *Offer) { h.Claims.done(o) }

// Failed notes that they were not, and will not be. The helper claims no more in this turn; nor in any other
// if it always fails.
func (h *Helper) Failed(o *Offer, always bool) {
	h.refused = o.number
	h.Claims.refuse(o, always)
}

// open reports whether there is a part with unclaimed pages.
func (o *Offer) open() bool {
	return o.Length > 0 && o.Length <= MaxPart && o.front+o.back < pagesOf(o.Length)
}

// look reads the leader's offer. It counts only if claimBack succeeds.
func (c *Claims) look() Offer {
	w := atomic.LoadUint64(&c.state)
	return Offer{turn: turnOf(w), word: w, Part: Part{ID: atomic.LoadUint64(&c.id),
		Key: atomic.LoadUint64(&c.key), At: atomic.LoadUint64(&c.at), Length: atomic.LoadUint64(&c.length)}}
}

// claimBack claims pages of an offer for the helper.
func (c *Claims) claimBack(o *Offer) (from, n uint64) {
	end := pagesOf(o.Length) - o.back
	pages := share(end - o.front)
	if o.back == 0 {
		pages = min(end-o.front, mostShare)
	}
	o.back += pages
	if !atomic.CompareAndSwapUint64(&c.state, o.word, o.turn.word()) {
		return 0, 0
	}
	from = (end - pages) * Page
	return from, min(end*Page, o.Length) - from
}

// done notes that the helper has copied all pages that it has claimed so far.
func (c *Claims) done(o *Offer) { atomic.StoreUint64(&c.copied, o.number<<32|o.back) }

// refuse notes that it does not copy them.
func (c *Claims) refuse(o *Offer, always bool) {
	w := o.number<<32 | refused
	if always {
		w |= never
	}
	atomic.StoreUint64(&c.copied, w)
}
