package engine

import (
	"cmp"
	"time"
)

// A Target counts the transfers that it posts and those that a Flush has ended, for the report of a rank that
// hangs or ends before the Flush. Transfers to a mapped part are not counted: they are complete at once.

// transfers counts the Puts and Gets of a target since it was made. Its Window's engine's lock guards it.
type transfers struct {
	begun, ended struct{ puts, gets uint64 }
	since        time.Time // of the oldest one not ended, or of the Flush before it
}

// count counts a transfer that was posted.
func (c *transfers) count(put bool) {
	if c.begun == c.ended {
		c.since = time.Now()
	}
	if put {
		c.begun.puts++
	} else {
		c.begun.gets++
	}
}

// end ends the transfers that had begun before a Flush, or a FlushLocal, which ends Gets alone.
func (c *transfers) end(before transfers, placed bool) {
	if placed {
		c.ended.puts = max(c.ended.puts, before.begun.puts)
	}
	c.ended.gets = max(c.ended.gets, before.begun.gets)
	if placed && c.begun != c.ended {
		c.since = time.Now()
	}
}

// OpenTransfers are the Puts and Gets on a rank's part of a window that no Flush has ended.
type OpenTransfers struct {
	Rank       int // in the world
	Puts, Gets int
	Since      time.Duration // of the oldest
}

// Open lists the transfers that no Flush has ended, by rank. It omits ranks that have failed.
func (w *Window) Open() (open []OpenTransfers) {
	for i := range w.targets {
		parts := []*Target{&w.targets[i]}
		if a := w.targets[i].attachments; a != nil {
			a.mu.Lock()
			for _, p := range a.used {
				parts = append(parts, &p.Target)
			}
			a.mu.Unlock()
		}
		all := OpenTransfers{Rank: w.targets[i].rank}
		w.e.mu.Lock()
		for _, t := range parts {
			if c := &t.transfers; c.begun != c.ended && t.unusableLocked() == nil {
				all.Puts += int(c.begun.puts - c.ended.puts)
				all.Gets += int(c.begun.gets - c.ended.gets)
				all.Since = max(all.Since, time.Since(c.since))
			}
		}
		w.e.mu.Unlock()
		if cmp.Or(all.Puts, all.Gets) > 0 {
			open = append(open, all)
		}
	}
	return open
}
