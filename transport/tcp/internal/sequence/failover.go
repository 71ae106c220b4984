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
func (f *Failover) Closed(number uint16) {
	f.version++
	f.due = true
	e := f.entry(number)
	if e.here == 0 {
		e.here = f.version
	}
}

func (f *Failover) entry(number uint16) *lostLane {
	i := slices.IndexFunc(f.list, func(e lostLane) bool { return e.number == number })
	if i < 0 {
		i = len(f.list)
		f.list = append(f.list, lostLane{number: number})
	}
	return &f.list[i]
}

// Unsent notes that the last state could not be sent.
func (f *Failover) Unsent() { f.due = true }

// Knows reports whether a lane is one that goes or has gone: its number must not be used yet.
func (f *Failover) Knows(number uint16) bool {
	return slices.ContainsFunc(f.list, func(e lostLane) bool { return e.number == number })
}

// Len is how many lanes are not forgotten yet.
func (f *Failover) Len() int { return len(f.list) }

// Due reports whether the state is to be told. Tell gives it and notes that it is on its way.
func (f *Failover) Due() bool { return f.due }

// Tell gives the state to be told, in closed's memory.
func (f *Failover) Tell(closed []uint16) frame.LostLanes {
	f.due = false
	for _, e := range f.list {
		if e.here != 0 {
			closed = append(closed, e.number)
		}
	}
	return frame.LostLanes{Version: f.version, Heard: f.heard, Closed: closed}
}

// Hear takes the peer's state. For each lane that is new in it fresh is called: what it carried of ours, and
// has not arrived, is to be sent again; our side of it is closed first, if it is not.
func (f *Failover) Hear(t frame.LostLanes, fresh func(number uint16)) {
	f.confirmed = max(f.confirmed, t.Heard)
	if t.Version > f.heard {
		f.heard = t.Version
		f.due = true
		for _, number := range t.Closed {
			if e := f.entry(number); !e.there {
				e.there = true
				fresh(number)
			}
		}
	}
	f.list = slices.DeleteFunc(f.list, func(e lostLane) bool {
		return e.there && e.here != 0 &&
			e.here <= f.confirmed
	})
}
