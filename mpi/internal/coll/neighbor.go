package coll

import "iter"

// Neighbors are the neighbors of one rank in a topology: it receives from Sources and sends to Destinations,
// one block each in their order. A block of NoNeighbor is left alone. A rank may occur several times, and may
// be this rank itself.
//
// The n-th message that one rank sends another is the n-th that the other receives, in the order of the
// lists. On a Cartesian topology Paired is set: 2i and 2i+1 are the neighbors below and above in dimension i.
// A message sent downwards is received from above (MPI 4.1, 8.6), so the messages from above are received
// first. That matters in periodic dimensions of one or two ranks.
type Neighbors struct {
	Sources, Destinations []int
	Paired                bool
}

// NoNeighbor stands for a missing neighbor.
const NoNeighbor = -2

var neighborAllgatherAlgorithms = []algorithm{
	{"direct", nil, func(s *Schedule, c *Call) {
		own := Span{Input, 0, c.bytes()}
		neighborExchange(s, c, func(int) Span { return own })
	}},
}

var neighborAlltoallAlgorithms = []algorithm{
	{"direct", nil, func(s *Schedule, c *Call) {
		neighborExchange(s, c, func(i int) Span { return c.Send.span(Input, i) })
	}},
}

// neighborExchange sends a block to each destination and receives one from each source, all at once.
func neighborExchange(s *Schedule, c *Call, block func(i int) Span) {
	n := c.Neighbors
	for k := range n.Sources {
		i := n.inOrder(k)
		if peer := n.Sources[i]; peer != NoNeighbor && peer != c.Rank {
			s.recv(peer, c.Recv.span(Output, i))
		}
	}
	for i, peer := range n.Destinations {
		if peer != NoNeighbor && peer != c.Rank {
			s.send(peer, block(i))
		}
	}
	for from, to := range n.Own(c.Rank) {
		s.copy(c.Recv.span(Output, to), block(from))
	}
	s.round()
}

// inOrder returns the index of the source of the k-th message. Where Paired is set, the sources 2i and 2i+1
// are exchanged.
func (n *Neighbors) inOrder(k int) int {
	if n.Paired {
		return k ^ 1
	}
	return k
}

// Own yields the blocks that a rank sends to itself: the index of the destination, and that of the source.
func (n *Neighbors) Own(rank int) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		k := 0 // counts the sources in the order of their messages
		for i, peer := range n.Destinations {
			if peer != rank {
				continue
			}
			for k < len(n.Sources) && n.Sources[n.inOrder(k)] != rank {
				k++
			}
			if k == len(n.Sources) || !yield(i, n.inOrder(k)) {
				return
			}
			k++
		}
	}
}
