package sharedcopy

import "sync/atomic"

// Leader is the end of a transfer that begins it. The zero Leader shares nothing.
type Leader struct {
	Claims *Claims // of the helper, mapped; nil if it has told of none
	Broken bool    // one end cannot access the other's memory, so sharing is impossible
	turn   uint32
	// A busy helper copies nothing, and each try costs at least a system call. So each turn in which it has
	// copied nothing doubles the number of transfers that are then made without a try.
	alone int // turns in a row in which the helper has copied nothing
	skip  int // transfers to make without a try
}

// maxAlone bounds how long sharing is not tried: for 7 transfers.
const maxAlone = 3

// Worthwhile tells whether a transfer of n bytes is to be shared.
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

// AfterOthers has the next turn follow that of another leader. Only one of them uses the claims at a time.
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

// Copy copies a part together with the helper. copyRange copies the bytes from one position in the part up
// to another one, or fails. If Copy returns false some of the bytes are not there.
//
// late is called when the helper does not come to the end of what it has claimed. It tells whether to wait
// on; if not, copyRange copies the bytes, and the helper may do so once more until the part's key is out of
// use.
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
	if p.Length >= Min { // of a shorter rest the helper has no share
		l.tried(helped > 0 && copied)
	}
	return ok && (copied || own(next, pages))
}

// copiedLooks is how often a leader looks for the end of what the helper copies, before the helper is late:
// for two milliseconds or more. It copies 4 MiB in less, unless it has lost its core.
const copiedLooks = 1 << 21

// awaitCopied waits until the helper has copied its pages; false if it does not come to it, or cannot.
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
