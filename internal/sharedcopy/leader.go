package sharedcopy

import "sync/atomic"

// Leader is the end of a transfer that begins it. The zero Leader shares nothing.
type Leader struct {
	Claims *Claims // of the helper, mapped; nil if it has none
	Broken bool    // one end cannot access the other's memory, so sharing is impossible
	turn   uint32
	// A busy helper copies nothing, and each try costs at least a system call. So each turn in which it has
	// copied nothing doubles the number of transfers that are then made without a try.
	alone int // turns in a row in which the helper has copied nothing
	skip  int // transfers to make without a try
}

// maxAlone limits how long sharing is not tried: 7 transfers.
const maxAlone = 3

// Worthwhile reports whether to share a transfer of n bytes.
func (l *Leader) Worthwhile(n uint64) bool {
	if l.Claims == nil || n < Min {
		return false
	}
	if l.skip > 0 {
		l.skip--
		return false
	}
	return true
}

// AfterOthers makes the next turn follow that of another leader. Only one leader may use the claims at a
// time.
func (l *Leader) AfterOthers() { l.turn = uint32(turnOf(atomic.LoadUint64(&l.Claims.state)).number) }

// tried notes whether the helper has copied anything in a turn.
func (l *Leader) tried(helped bool) {
	if helped {
		l.alone = 0
		return
	}
	l.alone = min(l.alone+1, maxAlone)
	l.skip = 1<<l.alone - 1
}

// Copy copies a part together with the helper. copyRange copies the bytes between two positions of the part,
// or fails. If Copy returns false some bytes are missing.
//
// late is called when the helper is slow to finish its claimed pages. It reports whether to wait longer; if
// not, copyRange copies the bytes, and the helper may copy them too until the part's key is invalid.
func (l *Leader) Copy(p *Part, copyRange func(from, to uint64) bool, late func() bool) (ok bool) {
	l.turn++
	pages := pagesOf(p.Length)
	own := func(from, to uint64) bool { return copyRange(from*Page, min(to*Page, p.Length)) }
	next, sane := uint64(0), true
	ok = true
	for k := l.Claims.begin(l.turn, p); k > 0; {
		ok = ok && own(next, next+k)
		next += k
		if k, sane = l.Claims.claimFront(l.turn, next, pages, !ok); !sane {
			l.Broken = true
			return false
		}
	}
	helped := pages - next
	copied := helped == 0 || l.awaitCopied(helped, late)
	if p.Length >= Min { // the helper gets no share of a shorter rest
		l.tried(helped > 0 && copied)
	}
	return ok && (copied || own(next, pages))
}

// copiedLooks is how often a leader polls for the helper's copy before the helper counts as late: for two
// milliseconds or more. It copies 4 MiB in less, unless it has lost its core.
const copiedLooks = 1 << 21

// awaitCopied waits until the helper has copied its pages; false if it is late, or cannot.
func (l *Leader) awaitCopied(pages uint64, late func() bool) bool {
	for looks := 1; ; looks++ {
		copied, refuses, always := l.Claims.copiedIn(l.turn)
		switch {
		case refuses || copied > pages:
			l.Broken = l.Broken || always || copied > pages
			return false
		case copied == pages:
			return true
		case looks%copiedLooks == 0 && !late():
			return false
		}
	}
}
