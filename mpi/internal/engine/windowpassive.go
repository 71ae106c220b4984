package engine

import "time"

// passiveProgress makes passes while this rank computes, so that operations of others on its windows
// complete: those that need its queue pairs or its engine, if there is no completion handler. It runs while
// there are such windows. The engine's lock guards it.
//
// The time between two passes is at most two periods plus the wait for the lock, which is handed over after
// about one millisecond. This counts only time in which the process has a CPU: Go's scheduler checks its
// timers whenever a goroutine yields, and preempts one that does not, but the kernel decides when the process
// runs.
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
		if !h.missed { // the holder of the lock usually makes a pass
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

// mapped reports whether every rank accesses this rank's part by loads and stores.
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

// shares reports whether the ranks of this host can map mem.
func (w *Window) shares(mem []byte) bool {
	return len(mem) == 0 || w.e.hub.Memory.has(mem)
}
