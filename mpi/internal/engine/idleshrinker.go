package engine

import "time"

// idleShrinker frees the large rings of channels that have been idle for long (E11). Its timer runs only
// while some channel has one. The engine's lock guards it.
type idleShrinker struct {
	e     *Engine
	after time.Duration // how long a channel has to be idle; 0 for never
	armed bool
	timer *time.Timer
}

func (q *idleShrinker) init(e *Engine, after time.Duration) {
	q.e, q.after = e, after
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
}

// arm starts the timer.
func (q *idleShrinker) arm() {
	if !q.armed && q.e.idleShrinker.after > 0 {
		q.armed = true
		q.timer.Reset(q.e.idleShrinker.after / 2)
	}
}

func (q *idleShrinker) tick() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	q.armed = false
	if e.stopped != nil || e.closing {
		return
	}
	for _, p := range e.peers {
		if p == nil || p.state != peerOpen || p.ch.Phase() == 0 {
			continue
		}
		if !p.sendPending() { // what waits may need the present slots
			if err := p.ch.ShrinkIfIdle(); err != nil {
				e.failures.failPeer(p, err)
				continue
			}
		}
		e.progress.advancePeer(p)
		q.arm()
	}
	e.progress.poll() // sends delayed messages too
}
