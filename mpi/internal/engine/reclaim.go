package engine

import "time"

// reclaim gives the memory of channels back that have been quiet for long (E11). Its timer runs while some channel has more than it began
// with, and at no other time.
type reclaim struct {
	e     *Engine
	armed bool
	timer *time.Timer
}

func (q *reclaim) init(e *Engine) {
	q.e = e
	q.timer = time.AfterFunc(time.Hour, q.tick)
	q.timer.Stop()
}

// arm starts the timer.
func (q *reclaim) arm() {
	if !q.armed && q.e.shrinkAfter > 0 {
		q.armed = true
		q.timer.Reset(q.e.shrinkAfter / 2)
	}
}

func (q *reclaim) tick() {
	e := q.e
	e.mu.Lock()
	defer e.mu.Unlock()
	q.armed = false
	if e.dead != nil || e.closing {
		return
	}
	for _, p := range e.peers {
		if p == nil || p.state != peerOpen || p.ch.Phase() == 0 {
			continue
		}
		if err := p.ch.Tick(); err != nil {
			e.failPeer(p, err)
			continue
		}
		e.kick(p)
		q.arm()
	}
	e.pass() // what was held back goes out
}
