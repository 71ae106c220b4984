package engine

import "time"

// heartbeat has the device tell the peers, once a period, that this rank lives, and find those that have been silent for too long. Its timer
// runs from the beginning to the end of the engine, whatever the rank does meanwhile: Go takes the processor away from a goroutine that
// computes. It is not answered for a rank whose whole process stands still, nor for one that keeps its only processor in a C call.
type heartbeat struct {
	e      *Engine
	period time.Duration
	timer  *time.Timer
}

// init starts the timer if the device wants it.
func (h *heartbeat) init(e *Engine) {
	h.e, h.period = e, e.device.Query().TickPeriod
	h.timer = time.AfterFunc(max(h.period, time.Hour), h.tick)
	if h.timer.Stop(); h.period > 0 {
		h.timer.Reset(h.period)
	}
}

func (h *heartbeat) tick() {
	e := h.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead != nil {
		return
	}
	h.look() // a rank that computes takes what has come, so that its peers can send on
	e.cq.Tick(time.Now())
	h.look() // what the tick has ended
	h.timer.Reset(h.period)
}

func (h *heartbeat) look() {
	if h.e.handled() {
		h.e.handle()
	} else {
		h.e.pass()
	}
}
