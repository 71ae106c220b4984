package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
)

// heartbeat has the devices tell the peers, once a period, that this rank lives, and find those that have
// been silent for too long. It also tells the channels that time passes, so that they ask for replies that do
// not come. Its timer runs from the beginning to the end of the rank, whatever the rank does meanwhile: Go
// takes the processor away from a goroutine that computes. It is not answered for a rank whose whole process
// stands still, nor for one that keeps its only processor in a C call.
type heartbeat struct {
	hub    *Hub
	period time.Duration
	timer  *time.Timer

	replyTimeout time.Duration // of replies to resize requests; 0 for never
	repliesDue   time.Time     // when the channels are told next that time passes
}

// init starts the timer if the devices want it.
func (h *heartbeat) init(hub *Hub) {
	h.hub, h.replyTimeout = hub, hub.conf.ReplyTimeout
	for _, d := range hub.devices {
		if p := d.Device.Query().TickPeriod; h.period == 0 || p > 0 && p < h.period {
			h.period = p
		}
	}
	h.timer = time.AfterFunc(max(h.period, time.Hour), h.tick)
	if h.timer.Stop(); h.period > 0 {
		h.timer.Reset(h.period)
	}
}

func (h *heartbeat) tick() {
	now := time.Now()
	ask := h.replyTimeout > 0 && !now.Before(h.repliesDue)
	if ask {
		h.repliesDue = now.Add(h.replyTimeout / 2)
	}
	works := false
	for e := range h.hub.each() {
		works = h.tickAt(e, now, ask) || works
	}
	if works {
		h.timer.Reset(h.period)
	}
}

// tickAt does what is due at an endpoint. It returns false if the endpoint does no more work.
func (h *heartbeat) tickAt(e *Engine, now time.Time, ask bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return false
	}
	e.Recovery.connectToSources(nil)
	e.Recovery.connectToAwaited()
	h.poll(e) // a rank that computes takes what has come, so that its peers can send on
	for _, f := range e.fabrics {
		f.cq.Tick(now)
	}
	if ask {
		h.tickReplies(e)
	}
	h.poll(e) // what the tick has ended
	return true
}

// tickReplies has the channels ask for replies that are overdue.
func (h *heartbeat) tickReplies(e *Engine) {
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen && p.ch.Due() == channel.DueResize {
			e.progress.advanceOrFail(p, p.ch.ReplyTick())
		}
	}
}

func (h *heartbeat) poll(e *Engine) {
	if e.completionHandler.active() {
		e.completionHandler.runLocked()
	} else {
		e.progress.poll()
	}
}
