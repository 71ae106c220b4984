package engine

import "time"

// held decides when an Isend may hold its bytes back so that many small messages share one write. The first since the last
// pass goes out at once: a lone message is never delayed. The ones behind it are gathered until the next pass (every Wait, Test
// or Probe makes one), until the provider has enough, or for a millisecond at most if the rank goes off to compute.
type held struct {
	burst int  // Isends since the last pass
	armed bool // the timer runs
	timer *time.Timer
}

const heldFor = time.Millisecond

func (h *held) init(e *Engine) {
	h.timer = time.AfterFunc(time.Hour, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		h.armed = false
		if h.burst > 1 && e.dead == nil {
			e.pass()
		}
	})
	h.timer.Stop()
}

// more tells whether the next Isend is held back.
func (h *held) more() bool {
	h.burst++
	if h.burst == 1 {
		return false
	}
	if !h.armed {
		h.armed = true
		h.timer.Reset(heldFor)
	}
	return true
}

// flushed says that a pass sends everything now.
func (h *held) flushed() { h.burst = 0 }
