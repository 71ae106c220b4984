package engine

import "time"

// passiveProgress makes a pass now and then while this rank computes, so that operations of others on its
// windows end: those that need its queue pairs or its engine, where there is no completion handler. It runs
// while there are such windows.
//
// A pass is made within two periods of every moment, and the time that other goroutines hold the lock, which
// goes to one that has waited for a millisecond. That is time in which the process has a processor: the Go
// scheduler looks at its timers whenever a goroutine yields, and takes the processor from one that does not;
// when the process gets it, where others want it too, is up to the system.
type passiveProgress struct {
	e      *Engine
	every  time.Duration // 0 for never
	timer  *time.Timer
	armed  bool
	missed bool // another goroutine had the lock at the last tick
}

func (h *passiveProgress) init(e *Engine, every time.Duration) {
	h.e, h.every = e, every
	h.timer = time.AfterFunc(time.Hour, h.tick)
	h.timer.Stop()
}

// arm starts the timer for a window that may need it.
func (h *passiveProgress) arm(w *Window) {
	if h.every == 0 || h.armed || h.e.completionHandler.active() || w.mapped() {
		return
	}
	h.armed = true
	h.timer.Reset(h.every)
}

func (h *passiveProgress) tick() {
	e := h.e
	if !e.mu.TryLock() {
		if !h.missed { // whoever has the lock makes a pass, as a rule
			h.missed = true
			h.timer.Reset(h.every)
			return
		}
		e.mu.Lock()
	}
	defer e.mu.Unlock()
	h.missed = false
	if e.stopped == nil {
		e.progress.poll()
	}
	if h.armed = h.again(); h.armed {
		h.timer.Reset(h.every)
	}
}

func (h *passiveProgress) again() bool {
	if h.e.stopped != nil {
		return false
	}
	for _, w := range h.e.Windows.list {
		if !w.mapped() {
			return true
		}
	}
	return false
}

// mapped tells whether every rank reaches this rank's part by itself.
func (w *Window) mapped() bool {
	if len(w.e.fabrics) > 1 || !w.e.fabrics[0].Device.Query().PeerMapped {
		return false
	}
	if w.dynamic == nil {
		return w.shares(w.mem)
	}
	for _, a := range w.dynamic.entries {
		if a != nil && !w.shares(a.mem) {
			return false
		}
	}
	return true
}

// shares tells whether memory of this rank is of the kind that the ranks of its host have mapped.
func (w *Window) shares(mem []byte) bool {
	return len(mem) == 0 || w.e.hub.memory.has(mem)
}
