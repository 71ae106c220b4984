package supervisor

import (
	"syscall"
	"time"
)

// A class says how well a failure explains the others.
type class uint8

const (
	certain    class = iota // no other rank can cause this, so it is the cause
	likely                  // the cause, unless a certain one turns up soon
	consequent              // happens to a rank whose peers are gone, so there is another cause
)

func (f *Failure) class() class {
	switch f.How {
	case Killed:
		switch f.Signal {
		case syscall.SIGPIPE:
			return consequent
		case syscall.SIGABRT:
			return likely
		}
		return certain
	case Exited, Unfinished, Stranded, Aborted, Silent:
		return likely
	}
	return certain
}

// debounce is how long to wait for a better explanation.
func (c class) debounce() time.Duration {
	switch c {
	case likely:
		return 50 * time.Millisecond
	case consequent:
		return 500 * time.Millisecond
	}
	return 0
}

// class returns the class of a failure. A likely cause is consequent if its rank had lost a peer before, or
// heard of a loss: then the cause is another's.
func (s *Supervisor) class(f *Failure) class {
	c := f.class()
	if c == likely && f.Rank >= 0 && s.ranks[f.Rank].lostPeer {
		return consequent
	}
	return c
}

// A rootCause finds the cause among the failures of a job: of those with the lowest class, the one whose rank
// first showed a sign of failure. Ranks end in a chain: one dies, its peers' connections break, and they give
// up, perhaps before the first has ended. But the first sign of the first comes before all that: its PMI
// connection closes before any that leads to a peer (see package pmi), and the agent keeps the kernel's
// order.
type rootCause struct {
	best  *Failure // nil: no failure is known
	class class    // of best
	sign  int      // of best: the number of its rank's first sign
}

// add adds a failure. It reports whether this is now the best explanation.
func (c *rootCause) add(f *Failure, class class, sign int) bool {
	if c.best != nil && (class > c.class || class == c.class && sign >= c.sign) {
		return false
	}
	c.best, c.class, c.sign = f, class, sign
	return true
}
