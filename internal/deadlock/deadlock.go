// Package deadlock explains from the snapshots of a job's ranks why the job hangs. It does no I/O.
//
// A rank is stuck if nothing can release it: all of its goroutines wait in calls of weft, or for one another,
// and none of these calls can complete because each needs a rank that is stuck itself or has finished. The
// stuck ranks are the largest set for which this holds. Every doubt counts against it. A rank may act if its
// snapshot is missing, if one of its goroutines sleeps, computes or waits for anything outside weft, if its
// program may have a timer that calls a function, or if messages wait for a connection. A wait with a
// deadline may end.
//
// Messages may be in flight while a snapshot is taken, so one set of snapshots proves nothing. The caller
// compares two sets: if the later one has stuck ranks, their Progress is the same in both, and no message is
// in flight between them, nothing will ever move them.
package deadlock

import (
	"slices"

	"github.com/weft-mpi/weft/internal/snapshot"
)

// Job is the state of a job: a snapshot for each rank, nil if unknown.
type Job []*snapshot.Rank

// SameProgress reports whether none of some ranks has moved between two states of a job.
func SameProgress(a, b Job, ranks []int) bool {
	return !slices.ContainsFunc(ranks, func(rank int) bool {
		x, y := a[rank], b[rank]
		return x == nil || y == nil || x.Progress != y.Progress || x.Phase != y.Phase
	})
}

// Stuck returns the ranks that nothing can release, in ascending order. Ranks that have finished are not
// among them.
func (j Job) Stuck() []int {
	return j.stuck(func(r *snapshot.Rank) bool { return r.Later == "" })
}

// stuck returns the ranks that nothing can release if no sleeping rank acts later.
func (j Job) stuck(asleep func(r *snapshot.Rank) bool) []int {
	stuck := make([]bool, len(j))
	for rank, r := range j {
		stuck[rank] = r != nil && r.Phase != snapshot.Finished && r.Active == 0 && len(r.Waits) > 0 &&
			r.MoreWaits == 0 && !r.Leaving && asleep(r)
	}
	for changed := true; changed; {
		changed = false
		for rank := range j {
			if stuck[rank] && slices.ContainsFunc(j[rank].Waits, func(w snapshot.Wait) bool {
				return j.mayEnd(rank, &w, stuck)
			}) {
				stuck[rank], changed = false, true
			}
		}
	}
	var ranks []int
	for rank, is := range stuck {
		if is {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// mayEnd reports whether a wait of a rank may end, given the ranks assumed to be stuck.
func (j Job) mayEnd(rank int, w *snapshot.Wait, stuck []bool) bool {
	if w.Bounded || w.MoreOps > 0 || len(w.Ops) == 0 {
		return true
	}
	may := func(o snapshot.Op) bool { return j.mayComplete(rank, &o, stuck) }
	return slices.ContainsFunc(w.Ops, may)
}

// mayComplete reports whether an operation of a rank may complete.
func (j Job) mayComplete(rank int, o *snapshot.Op, stuck []bool) bool {
	acts := func(peer int) bool {
		return peer < len(j) && !stuck[peer] && (j[peer] == nil || j[peer].Phase.Acts())
	}
	refuses := func(peer int) bool { return !acts(peer) }
	switch {
	case o.Moving:
		return true
	case o.Name == snapshot.Finalize:
		return !slices.ContainsFunc(j.missing(rank, o), refuses)
	case o.Kind == snapshot.Collective:
		return len(o.Needs) == 0 || !slices.ContainsFunc(o.Needs, refuses)
	case o.Kind == snapshot.Lock:
		members := j.members(rank, o.Comm)
		if len(j.holders(o)) == 0 && !slices.ContainsFunc(members, j.tellsNothing) {
			return true // the lock passes from one rank to the next
		}
		return slices.ContainsFunc(members, acts)
	case o.Kind == snapshot.Send:
		return acts(o.Peer) || !j.lies(rank, o)
	case o.Peer != snapshot.Any:
		return acts(o.Peer)
	}
	return slices.ContainsFunc(j.members(rank, o.Comm), acts)
}

// lies reports whether a message that a rank sends is at its peer, unmatched. Otherwise it has been received,
// or waits for room in the peer's memory, which the peer provides during any wait.
func (j Job) lies(rank int, o *snapshot.Op) bool {
	peer := j[o.Peer]
	if peer == nil || !peer.Phase.Acts() {
		return true
	}
	return slices.ContainsFunc(peer.Unexpected, func(m snapshot.Message) bool {
		return m.From == rank && m.Comm == o.Comm && m.Tag == o.Tag
	})
}

// InFlight reports whether a message may be in flight between two of some ranks.
func (j Job) InFlight(ranks []int) bool {
	type pair struct{ from, to int }
	sent, received := map[pair]uint64{}, map[pair]uint64{}
	for _, rank := range ranks {
		if len(j[rank].Channels) >= snapshot.MaxChannels {
			return true // not all of them are listed
		}
		for _, c := range j[rank].Channels {
			sent[pair{rank, c.Peer}], received[pair{c.Peer, rank}] = c.Sent, c.Received
		}
	}
	for _, from := range ranks {
		for _, c := range j[from].Channels {
			if _, known := slices.BinarySearch(ranks, c.Peer); known {
				to := pair{from, c.Peer}
				if sent[to] != received[to] {
					return true
				}
			}
		}
	}
	return false
}

// members returns the world ranks of a rank's communicator.
func (j Job) members(rank int, id uint32) []int {
	for _, c := range j[rank].Comms {
		if c.ID == id && c.Ranks != nil {
			return c.Ranks
		}
	}
	world := make([]int, len(j))
	for i := range world {
		world[i] = i
	}
	return world
}

// holders returns the ranks known to have the lock that an operation waits for.
func (j Job) holders(o *snapshot.Op) (ranks []int) {
	for rank, r := range j {
		if r != nil && slices.Contains(r.Locks, snapshot.Held{Comm: o.Comm, Peer: o.Peer}) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// tellsNothing reports whether a rank may have a lock that its snapshot does not list.
func (j Job) tellsNothing(rank int) bool {
	return rank < len(j) && j[rank] != nil &&
		(!j[rank].Phase.Acts() || len(j[rank].Locks) >= snapshot.MaxLocks)
}

// missing returns the members that have not begun a collective in which a rank waits.
func (j Job) missing(rank int, o *snapshot.Op) []int {
	var missing []int
	for _, peer := range j.members(rank, o.Comm) {
		if peer < len(j) && peer != rank && !j.hasBegun(peer, o) {
			missing = append(missing, peer)
		}
	}
	return missing
}

// hasBegun reports whether a rank has begun as many collectives on a communicator as an operation needs. For
// Finalize, the phase decides. A rank that does not list the communicator is making it or has freed it, so it
// counts as having begun.
func (j Job) hasBegun(rank int, o *snapshot.Op) bool {
	r := j[rank]
	if r == nil {
		return false
	}
	if o.Name == snapshot.Finalize {
		return !r.Phase.Acts()
	}
	for _, c := range r.Comms {
		if c.ID == o.Comm {
			return c.Begun >= o.Number
		}
	}
	return true
}
