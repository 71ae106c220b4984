package engine

import "time"

// held decides when an Isend may hold its bytes back so that many small messages share one write. The first since the last
// pass goes out at once: a lone message is never delayed. The ones behind it are gathered until the next pass (every Wait, Test
// or Probe makes one), or until there is enough. Behind a long burst the first of the next one is held too: a program that sends in bursts
// goes on to.
//
// A timer sends what is held if the rank goes off to compute: after a millisecond, unless it has hardly ever found anything to send. A timer
// that fires costs more than some bursts take, so a program that has always come back by itself is looked after less and less often.
type held struct {
	burst int  // Isends since the last pass
	last  int  // Isends of the burst before
	armed bool // the timer runs
	after time.Duration
	timer *time.Timer
}

const (
	longBurst = 8 // Isends between two passes make it likely that the next one is not alone either
	heldFor   = time.Millisecond
	heldMost  = 64 * time.Millisecond
)

func (h *held) init(e *Engine) {
	h.after = heldFor
	h.timer = time.AfterFunc(time.Hour, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		h.armed = false
		if h.burst == 0 {
			h.after = min(2*h.after, heldMost)
			return
		}
		h.after = heldFor
		if e.dead == nil {
			e.pass()
		}
	})
	h.timer.Stop()
}

// more tells whether the next Isend is held back.
func (h *held) more() bool {
	h.burst++
	if h.burst == 1 && h.last < longBurst {
		return false
	}
	if !h.armed {
		h.armed = true
		h.timer.Reset(h.after)
	}
	return true
}

// flushed says that a pass sends everything now.
func (h *held) flushed() {
	if h.burst > 0 {
		h.last, h.burst = h.burst, 0
	}
}
