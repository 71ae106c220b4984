package copycost

import "time"

const (
	// takeoverGain is at most how long copies may take into lines that the receiver has taken over, in per
	// cent of other copies.
	takeoverGain = 70
	// windowsTried is after how many windows of samples in a row that are slow it is tried.
	windowsTried = 2
	// windowsFirst is how many windows come soon, as all copies are sampled.
	windowsFirst = 4
	// windowsProven is in how many it must prove better, again and again.
	windowsProven = 4
	// windowsKept is after how many it is tried again: a host may have moved the cores apart.
	windowsKept = 256
)

// Takeover decides whether the receiver is to take over the lines of a ring, that is, to write to what it has
// read, by what copies into the ring take. On some processors they take a fifth of the time then. Its zero
// value does not have it do so.
type Takeover struct {
	state   takeoverState
	noted   int           // windows of samples, up to windowsFirst
	windows int           // that were slow, or have not proved it better, in a row; since it was no better
	before  time.Duration // what copies took before
}

type takeoverState uint8

const (
	takeoverOff   takeoverState = iota
	takeoverLost                // it was no better
	takeoverTried               // it is asked for, and may prove worse
	takeoverOn
)

// Measured decides by what copies of a KiB have been measured to take, into lines that the receiver has only
// read, and into lines that it has taken over.
func (t *Takeover) Measured(read, taken time.Duration) {
	*t = Takeover{before: read}
	if slow(read) && taken*100 <= read*takeoverGain {
		t.state = takeoverOn
	}
}

func slow(each time.Duration) bool { return each >= slowKiB }

// Ask reports whether the receiver is to take over lines.
func (t *Takeover) Ask() bool { return t.state >= takeoverTried }

// each returns one of how many copies is to be sampled.
func (t *Takeover) each() uint32 {
	switch {
	case t.noted < windowsFirst:
		return 1
	case t.state == takeoverTried:
		return intervalTried
	}
	return interval
}

// Note notes what copies of a KiB into the ring took in a window of samples, and whether all lines that they
// wrote had been taken over.
func (t *Takeover) Note(each time.Duration, taken bool) {
	t.noted = min(t.noted+1, windowsFirst)
	switch t.windows++; {
	case t.state == takeoverLost:
		if t.windows >= windowsKept {
			t.state, t.windows = takeoverOff, 0
		}
	case t.state == takeoverOff && !slow(each), t.Ask() && !taken:
		t.windows = 0
	case t.state == takeoverOff:
		if t.windows >= windowsTried {
			t.state, t.windows, t.before = takeoverTried, 0, each
		}
	case each*100 <= t.before*takeoverGain:
		t.state, t.windows = takeoverOn, 0
	case t.windows < windowsProven:
	case t.state == takeoverOn: // what copies take otherwise may have changed, too
		*t = Takeover{}
	default:
		t.state, t.windows = takeoverLost, 0
	}
}
