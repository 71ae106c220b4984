package sim

import (
	"fmt"
	"time"

	"github.com/weft-mpi/weft/transport"
)

// Cut cuts the connection between two ranks silently, and returns the number of connections cut, 0 or 1. Both
// ends notice when they are next driven; either may first receive what is already on the wire.
func (n *Network) Cut(a, b uint32) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	struck := 0
	for _, q := range n.between(a, b) {
		struck += n.cut(q)
	}
	return struck
}

// CutMidway arms a cut of the connection between two ranks as soon as a message on it is partly placed. It
// returns the number of connections armed. Counters.CutsMidway counts such cuts.
func (n *Network) CutMidway(a, b uint32) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	armed := n.between(a, b)
	for _, q := range armed {
		q.armed, q.peer.armed = true, true
	}
	return len(armed)
}

// Vanish removes a rank from the network silently, as when its process is killed. Its own calls fail from
// then on. It returns the number of connections cut.
func (n *Network) Vanish(rank uint32) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	struck := 0
	for _, d := range n.devices {
		if d.ep == nil || d.gone || d.rank() != rank {
			continue
		}
		for _, q := range d.openQPs() {
			struck += n.cut(q)
		}
		d.gone = true
		n.counters.Vanished++
		for _, c := range d.cqs {
			c.signal()
		}
	}
	return struck
}

// between returns the open queue pairs at a of the connections between two ranks.
func (n *Network) between(a, b uint32) []*qp {
	var list []*qp
	for _, d := range n.devices {
		if d.ep == nil || d.gone || d.rank() != a {
			continue
		}
		for _, q := range d.openQPs() {
			if q.peerRank == b && !q.final() {
				list = append(list, q)
			}
		}
	}
	return list
}

// cut cuts a connection, and returns 1 if it was not cut before.
func (n *Network) cut(q *qp) int {
	if q.cut || q.final() {
		return 0
	}
	p := q.peer
	lost := fmt.Errorf("the connection was cut: %w", transport.ErrPeerLost)
	q.pending = &fault{status: transport.StatusFatal, err: fmt.Errorf("%s: %w", q, lost),
		drain: q.rng.IntN(2) == 0}
	q.cutPeer(lost)
	q.signal()
	n.counters.Cuts++
	for _, m := range append(append([]*message(nil), q.in...), p.in...) {
		if m.placed > 0 && m.placed < len(m.pieces) {
			n.counters.CutsMidway++
			break
		}
	}
	return 1
}

// strike cuts the connection after a piece of m was placed, if the seed or a test says so.
func (q *qp) strike(m *message) {
	n := q.net
	if n.cutEvery > 0 && q.rng.IntN(n.cutEvery) == 0 || q.armed && m.placed < len(m.pieces) {
		q.armed, q.peer.armed = false, false
		n.cut(q)
	}
}

func pairOf(a, b uint32) [2]uint32 { return [2]uint32{min(a, b), max(a, b)} }

// Slow delays everything between two ranks, in both directions, by d.
func (n *Network) Slow(a, b uint32, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.slow == nil {
		n.slow = map[[2]uint32]time.Duration{}
	}
	n.slow[pairOf(a, b)] = d
}

// Hold delays every attempt to connect two ranks, by either, until Unhold.
func (n *Network) Hold(a, b uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gates[pairOf(a, b)] == nil {
		n.gates[pairOf(a, b)] = make(chan struct{})
	}
}

// Unhold ends a Hold.
func (n *Network) Unhold(a, b uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if open := n.gates[pairOf(a, b)]; open != nil {
		close(open)
		delete(n.gates, pairOf(a, b))
	}
}

// Refuse makes the next attempts to connect two ranks, by either, fail.
func (n *Network) Refuse(a, b uint32, attempts int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusals[pairOf(a, b)] = attempts
}

// Collide makes the next attempts of two ranks to connect to each other collide: neither commits before both
// are prepared. Both ranks must begin one, or the one that does waits forever.
func (n *Network) Collide(a, b uint32) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.collisions[pairOf(a, b)] == nil {
		n.collisions[pairOf(a, b)] = make(chan struct{})
	}
}
