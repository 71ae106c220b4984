package mpi

import (
	"errors"
	"math/bits"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// maxCounterBits bounds the communicators that one rank can lead at a time, and the memory for their ids.
const maxCounterBits = 20

// errNoID is returned at every rank alike.
var errNoID = errors.New("no context id is free at all ranks: free communicators that are no longer used")

// contextIDs is what one rank knows about the ids of communicators.
//
// The ranks of a new communicator agree on its id in rounds. The leader, rank 0 of the calling communicator,
// proposes an id, and every rank votes: the id is taken if all ranks accept it. An id names the leader's
// world rank, so two leaders never propose the same one. A leader never proposes an id that is claimed at
// itself, and a rank never accepts one that is claimed there. Hence agreements on overlapping groups do not
// affect one another, in whatever order goroutines run.
//
// A leader counts up and starts again at the end, so an id is not used again until all others of the leader
// have had their turn.
//
// Invariant: an id is claimed at a rank from its vote (the leader: its proposal) until it learns that the id
// was refused, or until Free. A rank that gives up after its vote does not learn the result, so its claim
// stays: others may use the id.
type contextIDs struct {
	mu          *engine.Lock // not a mutex: whoever has it sleeps
	rank        uint32
	counterBits int
	next        uint32              // the counter that this rank proposes next
	claimed     map[uint32]struct{} // ids that this rank accepts for no other communicator
	// subset of claimed: Free was called, and operations may still be under way
	freed   map[uint32]struct{}
	traffic contextTraffic
}

// contextTraffic is what the engine knows about the messages of a context.
type contextTraffic interface {
	ContextInUse(context uint32) bool // an operation is under way or a message waits
	// no operation will begin: messages that none of those under way receives are dropped
	FreeContext(context uint32)
	ReleaseContext(context uint32) // the context is no longer used
	ReuseContext(context uint32)   // a new communicator begins to use the context
}

func newContextIDs(rank, size int, traffic contextTraffic) *contextIDs {
	rankBits := bits.Len(uint(size - 1))
	x := &contextIDs{
		mu:          new(engine.Lock),
		rank:        uint32(rank),
		counterBits: min(maxCounterBits, contextid.NumberBits-rankBits),
		claimed:     map[uint32]struct{}{contextid.World: {}},
		freed:       map[uint32]struct{}{},
		traffic:     traffic,
	}
	x.mu.Init()
	return x
}

// propose claims an id of this rank's own for a new communicator. It reports false if all are claimed.
func (x *contextIDs) propose() (uint32, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.collect()
	limit := uint32(1)<<x.counterBits - 1 // the last is left out: no context is the largest uint32
	for range limit {
		id := contextid.Numbered(x.rank<<x.counterBits | x.next)
		x.next++
		if x.next == limit {
			x.next = 0
		}
		if x.claim(id) {
			return id, true
		}
	}
	return 0, false
}

// accept claims an id that the leader of an agreement proposes. It reports false if the id is claimed
// already.
func (x *contextIDs) accept(id uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.collect()
	return x.claim(id)
}

func (x *contextIDs) claim(id uint32) bool {
	if _, ok := x.claimed[id]; ok {
		return false
	}
	x.claimed[id] = struct{}{}
	for context := range contextid.Contexts(id) {
		x.traffic.ReuseContext(context)
	}
	return true
}

// refuse ends a claim on an id that was not agreed on, or that is used by other ranks only.
func (x *contextIDs) refuse(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.claimed, id)
}

// free ends the claim on a communicator's id as soon as its last operation is complete.
func (x *contextIDs) free(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.freed[id] = struct{}{}
	for context := range contextid.Contexts(id) {
		x.traffic.FreeContext(context)
	}
}

// collect ends the claims on ids of freed communicators without traffic.
func (x *contextIDs) collect() {
	for id := range x.freed {
		if x.busy(id) {
			continue
		}
		for context := range contextid.Contexts(id) {
			x.traffic.ReleaseContext(context)
		}
		delete(x.freed, id)
		delete(x.claimed, id)
	}
}

func (x *contextIDs) busy(id uint32) bool {
	for context := range contextid.Contexts(id) {
		if x.traffic.ContextInUse(context) {
			return true
		}
	}
	return false
}
