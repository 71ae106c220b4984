package engine

import (
	"time"

	"github.com/weft-mpi/weft/channel"
)

// heartbeat makes the devices, once a period, tell the peers that this rank is alive, and find peers that
// have been silent for too long. It also makes the channels ask again for overdue replies. If a device has a
// TickPeriod, the heartbeat's timer runs from the beginning to the end of the rank, also while the program
// computes, because Go preempts goroutines; otherwise it does not run. A rank is silent if its whole process
// is stopped, or if a C call occupies its only CPU.
type heartbeat struct {
	hub    *Hub
	period time.Duration
	timer  *time.Timer

	replyTimeout time.Duration // for replies to resize requests; 0 for none
	repliesDue   time.Time     // when the channels next look for overdue replies
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

// tickAt is the tick of one endpoint. It returns false if the endpoint has stopped.
func (h *heartbeat) tickAt(e *Engine, now time.Time, ask bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped != nil {
		return false
	}
	e.Recovery.connectToSources(nil)
	e.Recovery.connectToAwaited()
	e.progress.pass() // a rank that computes takes its messages, so that its peers can send more
	for _, f := range e.fabrics {
		f.cq.Tick(now)
	}
	if ask {
		h.tickReplies(e)
	}
	e.progress.pass() // connections that the tick has ended
	return true
}

// tickReplies makes the channels ask again for overdue replies. The lock is held.
func (h *heartbeat) tickReplies(e *Engine) {
	for _, p := range e.peers {
		if p != nil && p.state == peerOpen && p.ch.Due() == channel.DueResize {
			e.progress.advanceOrFail(p, p.ch.ReplyTick())
		}
	}
}
