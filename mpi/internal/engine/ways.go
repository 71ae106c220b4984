package engine

import (
	"math"

	"github.com/weft-mpi/weft/internal/copycost"
	"github.com/weft-mpi/weft/internal/tuning"
)

// unforced is what decides how messages to a peer move, while a way is forced.
type unforced struct {
	copies                 peerCopies
	unawaited              backoff
	eagerLimit, shortLimit int
}

// ForceWay forces a way of the messages to all ranks with which this endpoint is connected, so that a tuner
// can compare ways within one job. tuning.Chosen goes on with what the rank knew before: nothing is sampled
// while a way is forced.
func (s *Sends) ForceWay(w tuning.Way) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for p, u := range s.unforced {
		p.copies, p.unawaited, p.eagerLimit, p.shortLimit = u.copies, u.unawaited, u.eagerLimit, u.shortLimit
	}
	s.unforced = nil
	if w == tuning.Chosen {
		return
	}
	s.unforced = make(map[*peer]unforced)
	for _, p := range s.e.peers {
		if p != nil && p.state == peerOpen {
			s.unforced[p] = unforced{p.copies, p.unawaited, p.eagerLimit, p.shortLimit}
			p.forceWay(w)
		}
	}
}

func (p *peer) forceWay(w tuning.Way) {
	costs, limit := copycost.ForcesMapped, math.MaxInt
	if w == tuning.Announced {
		costs, limit = copycost.ForcesCall, 1
	}
	p.unawaited = backoff{}
	if p.copies.awaited < 0 {
		p.eagerLimit, p.shortLimit = limit, limit
		return
	}
	p.copies.sampled, p.copies.growth = false, backoff{}
	p.decideByCosts(costs)
}

// decideByCosts sets the lengths up to which messages go through the ring.
func (p *peer) decideByCosts(costs copycost.Costs) {
	p.copies.awaited, p.copies.streamed = costs.Awaited(), costs.Streamed()
	p.shortLimit = min(p.eagerLimit, p.copies.awaited, copycost.MinSample-1)
}
