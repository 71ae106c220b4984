package sequence

import (
	"slices"

	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Failover is how two ends agree that lanes are gone. Each end closes its own side of a lane, so that nothing
// of it is placed any more, and tells the other so, together with what has arrived; only then does the other
// send again what that lane carried. Each tells its whole state, with a version, and which version of the
// other it has heard. A message is lost only with the lane that carried it, and when that is closed all is
// told anew. When both know of both, a lane is forgotten.
type Failover struct {
	version   uint32 // of our state
	heard     uint32 // of the peer's, the newest
	confirmed uint32 // of ours, that the peer has heard
	list      []lostLane
	due       bool
}

type lostLane struct {
	number uint16
	here   uint32 // the version from which on we tell that our side is closed
	there  bool   // the peer has told that its side is
}

// Closed notes that this side of a lane is closed, and everything that had come of it placed or dropped.
func (l *Failover) Closed(number uint16) {
	l.version++
	l.due = true
	e := l.entry(number)
	if e.here == 0 {
		e.here = l.version
	}
}

func (l *Failover) entry(number uint16) *lostLane {
	i := slices.IndexFunc(l.list, func(e lostLane) bool { return e.number == number })
	if i < 0 {
		i = len(l.list)
		l.list = append(l.list, lostLane{number: number})
	}
	return &l.list[i]
}

// Unsent notes that the last state could not be sent.
func (l *Failover) Unsent() { l.due = true }

// Knows tells whether a lane is one that goes or has gone: its number must not be used yet.
func (l *Failover) Knows(number uint16) bool {
	return slices.ContainsFunc(l.list, func(e lostLane) bool { return e.number == number })
}

// Len is how many lanes are not forgotten yet.
func (l *Failover) Len() int { return len(l.list) }

// Due tells whether the state is to be told. Tell gives it and notes that it is on its way.
func (l *Failover) Due() bool { return l.due }

// Tell gives the state to be told, in closed's memory.
func (l *Failover) Tell(closed []uint16) frame.LostLanes {
	l.due = false
	for _, e := range l.list {
		if e.here != 0 {
			closed = append(closed, e.number)
		}
	}
	return frame.LostLanes{Version: l.version, Heard: l.heard, Closed: closed}
}

// Hear takes the peer's state. For each lane that is new in it fresh is called: what it carried of ours, and
// has not arrived, is to be sent again; our side of it is closed first, if it is not.
func (l *Failover) Hear(t frame.LostLanes, fresh func(number uint16)) {
	l.confirmed = max(l.confirmed, t.Heard)
	if t.Version > l.heard {
		l.heard = t.Version
		l.due = true
		for _, number := range t.Closed {
			if e := l.entry(number); !e.there {
				e.there = true
				fresh(number)
			}
		}
	}
	l.list = slices.DeleteFunc(l.list, func(e lostLane) bool {
		return e.there && e.here != 0 &&
			e.here <= l.confirmed
	})
}
