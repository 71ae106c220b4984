package contextid

import (
	"errors"
	"math/bits"
	"sync"
)

// maxCounterBits bounds the communicators that one rank can lead at a time, and the memory for their ids.
const maxCounterBits = 20

// ErrNoID is the error of an agreement that has failed, and is returned at every rank alike.
var ErrNoID = errors.New("no context id is free at all ranks: free communicators that are no longer used")

// Claims are the ids of communicators that one rank knows to be in use.
//
// The ranks of a new communicator agree on its id in rounds. The leader, rank 0 of the calling communicator,
// proposes an id, and every rank votes: the id is taken if all ranks accept it. An id names the leader's
// world rank, so two leaders never propose the same one. A leader never proposes an id that is claimed at
// itself, and a rank never accepts one that is claimed there. Hence agreements on overlapping groups do not
// affect one another, in whatever order goroutines run.
//
// An id also says on which endpoint the communicator lives. The leader takes its endpoints in turn, and no
// rank accepts an id on an endpoint that it does not have. So all ranks agree on the endpoint with the id.
//
// A leader counts up, on each endpoint, and starts again at the end, so an id is not used again until all
// others of the leader have had their turn.
//
// Invariant: an id is claimed at a rank from its vote (the leader: its proposal) until it learns that the id
// was refused, or until Free. A rank that gives up after its vote does not learn the result, so its claim
// stays: others may use the id.
type Claims struct {
	mu          sync.Locker
	rank        uint32
	counterBits int
	endpoints   int                  // of this rank
	turn        int                  // the endpoint of the latest proposal
	next        [MaxEndpoints]uint32 // the counter that this rank proposes next, on each endpoint
	claimed     map[uint32]struct{}  // ids that this rank accepts for no other communicator
	// subset of claimed: Free was called, and operations may still be under way
	freed   map[uint32]struct{}
	traffic Traffic
}

// Traffic knows the messages of contexts.
type Traffic interface {
	ContextInUse(context uint32) bool // an operation is under way or a message waits
	// no operation will begin: messages that none of those under way receives are dropped
	FreeContext(context uint32)
	ReleaseContext(context uint32) // the context is no longer used
	ReuseContext(context uint32)   // a new communicator begins to use the context
	HasEndpoint(number int) bool   // the endpoint is there; this makes it on its first use
}

// NewClaims returns the claims of a rank of the world with a number of endpoints. mu guards all of them.
func NewClaims(rank, size, endpoints int, mu sync.Locker, traffic Traffic) *Claims {
	rankBits := bits.Len(uint(size - 1))
	return &Claims{
		mu:          mu,
		rank:        uint32(rank),
		counterBits: min(maxCounterBits, LocalBits-rankBits),
		endpoints:   endpoints,
		claimed:     map[uint32]struct{}{World: {}},
		freed:       map[uint32]struct{}{},
		traffic:     traffic,
	}
}

// Limit bounds the communicators that this rank leads at a time to about 2^bits.
func (x *Claims) Limit(bits int) { x.counterBits = bits }

// AnyEndpoint stands for the next endpoint in turn.
const AnyEndpoint = -1

// Propose claims an id of this rank's own for a new communicator, on an endpoint or on AnyEndpoint. It
// reports false if all are claimed.
func (x *Claims) Propose(endpoint int) (uint32, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.collect()
	if endpoint != AnyEndpoint {
		return x.proposeOn(endpoint)
	}
	for range x.endpoints {
		x.turn = (x.turn + 1) % x.endpoints
		if id, ok := x.proposeOn(x.turn); ok {
			return id, true
		}
	}
	return 0, false
}

func (x *Claims) proposeOn(endpoint int) (uint32, bool) {
	if !x.traffic.HasEndpoint(endpoint) {
		return 0, false
	}
	limit := uint32(1)<<x.counterBits - 1 // the last is left out: no context is the largest uint32
	for range limit {
		next := &x.next[endpoint]
		id := OnEndpoint(endpoint, x.rank<<x.counterBits|*next)
		if *next++; *next == limit {
			*next = 0
		}
		if x.claim(id) {
			return id, true
		}
	}
	return 0, false
}

// Accept claims an id that the leader of an agreement proposes. It reports false if the id is claimed
// already, or this rank does not have its endpoint.
func (x *Claims) Accept(id uint32) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.collect()
	return x.traffic.HasEndpoint(Endpoint(id)) && x.claim(id)
}

func (x *Claims) claim(id uint32) bool {
	if _, ok := x.claimed[id]; ok {
		return false
	}
	x.claimed[id] = struct{}{}
	for context := range Contexts(id) {
		x.traffic.ReuseContext(context)
	}
	return true
}

// Refuse ends a claim on an id that was not agreed on, or that is used by other ranks only.
func (x *Claims) Refuse(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.claimed, id)
}

// Free ends the claim on a communicator's id as soon as its last operation is complete.
func (x *Claims) Free(id uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.freed[id] = struct{}{}
	for context := range Contexts(id) {
		x.traffic.FreeContext(context)
	}
}

// collect ends the claims on ids of freed communicators without traffic.
func (x *Claims) collect() {
	for id := range x.freed {
		if x.busy(id) {
			continue
		}
		for context := range Contexts(id) {
			x.traffic.ReleaseContext(context)
		}
		delete(x.freed, id)
		delete(x.claimed, id)
	}
}

func (x *Claims) busy(id uint32) bool {
	for context := range Contexts(id) {
		if x.traffic.ContextInUse(context) {
			return true
		}
	}
	return false
}
