package engine

import (
	"github.com/weft-mpi/weft/eager"
	"github.com/weft-mpi/weft/mpi/internal/coll"
)

// shortBytes is the length up to which a message is sent, and its answer looked for in the ring, before
// anything is posted.
const shortBytes = 512

// shortMessages returns the number of messages of a round if these are at most one receive and at most one
// short send, else 0.
func shortMessages(steps []coll.Step) int {
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
		n := shortMessages(steps)
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

// exchangeShort sends and receives the messages of a round for which shortMessages is not 0, or that has no
// messages. It reports false if the send must wait, because the peer accepts no more payload, or if the
// message to receive has not arrived. In that case at most the send has been done; c.sent says so.
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
