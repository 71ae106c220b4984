package engine

import (
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// Run executes a collective: it is Start and Wait, with a fast path for short messages.
func (cs *Collectives) Run(c *Collective) error {
	e := cs.e
	start := e.hook.beginCollective(c)
	err := cs.run(c)
	e.hook.endLong(CallCollective, start)
	return err
}

func (cs *Collectives) run(c *Collective) error {
	e := cs.e
	cs.pinBuffers(c)
	c.prepare()
	if c.Canceller == nil && !e.failures.noted.Load() {
		done, err := cs.shortRounds(c)
		if done || err != nil {
			if c.pooled || c.pinned != [2]*Memory{} {
				e.mu.Lock()
				cs.unpinBuffersLocked(c)
				cs.recycleLocked(c)
				e.mu.Unlock()
			}
			return err
		}
	}
	e.mu.Lock()
	c.hasWaiter = true
	r, err := cs.beginLocked(c)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	h := r.handle()
	e.mu.Unlock()
	_, err = cs.wait(r, h)
	return err
}

// wait waits for a collective, and executes those of its local steps that must not run under the lock.
func (cs *Collectives) wait(r *request, h Request) (st Status, err error) {
	at := func(int) Request { return h }
	for {
		var work *Collective
		var done bool
		cs.e.waiting.waitUntil(1, at, func() bool {
			if done || work != nil {
				return true
			}
			if cs.e.Requests.find(h) != r {
				done, err = true, errUsed
				return true
			}
			if r.completed() {
				done = true
				st, err = cs.e.Requests.collect(h, r)
				return true
			}
			c := r.collective
			c.hasWaiter = true
			if c.state == collectiveStepsDue {
				c.state, work = collectiveWorking, c
			}
			return work != nil
		})
		if done {
			return st, err
		}
		cs.runSteps(work)
	}
}

// waitsForWork reports whether the request is a collective whose local steps its waiter is to execute.
func (r *request) waitsForWork() bool {
	return r.kind == kindCollective && r.collective != nil && r.collective.state == collectiveStepsDue
}

// shortBytes is the length up to which a message is sent, and its answer looked for in the ring, before
// anything is posted.
const shortBytes = 512

// isShort returns the number of messages of a round if these are at most one receive and at most one short
// send, else 0.
func isShort(steps []coll.Step) int {
	n := 0
	for n < len(steps) && steps[n].Kind <= coll.Recv {
		n++
	}
	switch {
	case n == 1 && (steps[0].Kind == coll.Recv || steps[0].Src.Len <= shortBytes):
		return 1
	case n == 2 && steps[0].Kind == coll.Recv && steps[1].Kind == coll.Send && steps[1].Src.Len <= shortBytes:
		return 2
	}
	return 0
}

// shortRounds executes rounds of short messages as blocking sends and receives, without requests. It stops
// before the first message that needs a request: c.round and c.sent say where. done reports that all rounds
// are finished.
func (cs *Collectives) shortRounds(c *Collective) (done bool, err error) {
	for ; c.round < c.Schedule.Rounds(); c.round++ {
		steps := c.Schedule.Round(c.round)
		n := isShort(steps)
		if n == 0 && steps[0].Kind <= coll.Recv {
			return false, nil
		}
		if done, err := cs.exchangeShort(c, steps[:n]); !done {
			return false, err
		}
		for i := range steps[n:] {
			c.carryOut(&steps[n+i])
		}
	}
	return true, nil
}

// exchangeShort sends and receives the messages of a round for which isShort is not 0. It reports false if
// the send must wait, because the peer accepts no more payload, or if the message to receive has not arrived.
// In that case at most the send has been done; c.sent says so.
func (cs *Collectives) exchangeShort(c *Collective, steps []coll.Step) (done bool, err error) {
	if len(steps) == 0 {
		return true, nil
	}
	env := envelope{Context: c.Context, Tag: int32(c.Tag)}
	cs.e.mu.Lock()
	cs.noteLocked(c)
	if s := &steps[len(steps)-1]; s.Kind == coll.Send {
		if !cs.sendNowLocked(c, s) {
			cs.e.mu.Unlock()
			return false, nil
		}
		c.sent = true
	}
	s := &steps[0]
	if s.Kind != coll.Recv {
		c.sent = false
		cs.e.mu.Unlock()
		return true, nil
	}
	src := c.worldRank(s.Peer)
	var buf []byte
	if c.Incoming == nil {
		buf = c.span(s.Dst)
	} else if s.Dst.Len <= stageBytes {
		buf = cs.e.views.incoming.room(s.Dst.Len)
	}
	var addr uintptr
	if len(buf) == s.Dst.Len && cs.e.Recvs.canRecvDirectLocked(src) {
		p := cs.e.peers[src]
		n, ok := cs.e.Recvs.recvDirectLocked(p, env, buf)
		switch {
		case ok && n != len(buf):
			err = c.wrongLength(s, n)
		case ok:
			if c.Incoming != nil {
				to := blockOf(c.Incoming, s.Dst).cursor()
				to.Scatter(0, buf)
			}
			done, c.sent = true, false
			addr = eager.PrefetchAddr(p.ch, n)
		}
	}
	cs.e.mu.Unlock()
	prefetch(addr)
	return done, err
}
