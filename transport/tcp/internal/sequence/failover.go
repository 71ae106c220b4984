package sequence

import (
	"slices"

	"github.com/weft-mpi/weft/transport/tcp/internal/frame"
)

// Failover lets the two ends agree that lanes are gone before anything is resent. Each end closes its side of
// a lane, so that none of its frames is placed any more, and then sends its whole state: the lanes that it
// has closed, the frames that it has received, and two version numbers, that of its own state and that of the
// newest state of the peer that it has received. Only then does the peer resend the lane's frames. A state
// can be lost only with the lane that carried it; that lane is then closed too, and a new state sent. When
// both ends have confirmed the loss of a lane, it is forgotten.
type Failover struct {
	version   uint32 // of this end's state
	heard     uint32 // of the peer's newest state
	confirmed uint32 // of ours that the peer has received
	list      []lostLane
	due       bool
	untold    bool // the last state had no room for all lanes
}

type lostLane struct {
	number uint16
	here   uint32 // the version of the first state that says that our side is closed; 0: it is open
	there  bool   // the peer has reported that its side is closed
}

// Closed notes that this side of a lane is closed, and everything received over it is placed or dropped.
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

// Knows reports whether a lane is lost and not yet forgotten: its number must not be used.
func (f *Failover) Knows(number uint16) bool {
	return slices.ContainsFunc(f.list, func(e lostLane) bool { return e.number == number })
}

// Len returns the number of lost lanes that are not yet forgotten.
func (f *Failover) Len() int { return len(f.list) }

// Due reports whether the state must be sent.
func (f *Failover) Due() bool { return f.due }

// State returns the state to send, and notes that it is sent. If there is no room for all
// lanes, it leaves out those that the peer has confirmed; others for which there is none are in a later
// version, once the peer has confirmed this one.
func (f *Failover) State() frame.LostLanes {
	var closed []uint16
	f.due = false
	for i := range f.list {
		e := &f.list[i]
		switch {
		case e.here == 0, len(f.list) > frame.MaxLostLanes && e.here <= f.confirmed:
		case len(closed) == frame.MaxLostLanes:
			e.here, f.untold = f.version+1, true
		default:
			closed = append(closed, e.number)
		}
	}
	return frame.LostLanes{Version: f.version, Heard: f.heard, Closed: closed}
}

// Merge merges the peer's state. It calls fresh for each lane that the peer has newly closed: this end must
// close its side, if it is open, and resend the frames of the lane that have not arrived.
func (f *Failover) Merge(t frame.LostLanes, fresh func(number uint16)) {
	if f.untold && t.Heard == f.version {
		f.version++
		f.due, f.untold = true, false
	}
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
		return e.there && e.here != 0 && e.here <= f.confirmed
	})
}
