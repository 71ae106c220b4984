package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
)

// heartbeat has the devices tell the peers, once a period, that this rank lives, and find those that have
// been silent for too long. It also tells the channels that time passes, so that they ask for replies that do
// not come. Its timer runs from the beginning to the end of the engine, whatever the rank does meanwhile: Go
// takes the processor away from a goroutine that computes. It is not answered for a rank whose whole process
// stands still, nor for one that keeps its only processor in a C call.
type heartbeat struct {
	e      *Engine
	period time.Duration
	timer  *time.Timer

	replyTimeout time.Duration // of replies to resize requests; 0 for never
	repliesDue   time.Time     // when the channels are told next that time passes
}

// init starts the timer if the devices want it.
func (h *heartbeat) init(e *Engine) {
	h.e = e
	for _, f := range e.fabrics {
		if p := f.device.Query().TickPeriod; h.period == 0 || p > 0 && p < h.period {
			h.period = p
		}
	}
	h.timer = time.AfterFunc(max(h.period, time.Hour), h.tick)
	if h.timer.Stop(); h.period > 0 {
		h.timer.Reset(h.period)
	}
}

func (h *heartbeat) tick() {
	e := h.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return
	}
	e.recovery.watchSources(nil)
	e.recovery.watchAwaited()
	h.poll() // a rank that computes takes what has come, so that its peers can send on
	now := time.Now()
	for _, f := range e.fabrics {
		f.cq.Tick(now)
	}
	h.tickReplies(now)
	h.poll() // what the tick has ended
	h.timer.Reset(h.period)
}

// tickReplies has the channels ask for replies that are overdue.
func (h *heartbeat) tickReplies(now time.Time) {
	if h.replyTimeout == 0 || now.Before(h.repliesDue) {
		return
	}
	h.repliesDue = now.Add(h.replyTimeout / 2)
	for _, p := range h.e.peers {
		if p != nil && p.state == peerOpen && p.ch.Due() == channel.DueResize {
			h.e.progress.advanceOrFail(p, p.ch.ReplyTick())
		}
	}
}

func (h *heartbeat) poll() {
	if h.e.completionHandler.active() {
		h.e.completionHandler.runLocked()
	} else {
		h.e.progress.poll()
	}
}
