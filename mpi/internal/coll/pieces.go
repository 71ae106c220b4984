package coll

import "math"

// In the algorithms in pieces two ranks send long vectors through their mailboxes as they send short ones, a
// piece in each round: one copies a piece in while the other copies the one before out. A rank that only
// sends need not wait. That suits lengths up to which bytes move faster through mapped memory than by a
// system call, as measured costs say (Call.Quick). Longer vectors are pulled. The order of operands is that
// of the pulling algorithms, so that no result depends on the processor.

const piecesName = "pieces"

// QuickAlways is the value of Call.Quick where messages of every length move faster through mapped memory.
const QuickAlways = math.MaxInt

const (
	// PieceMin is the length of a piece of a vector of up to piecesFew bytes, so that there are two. Pieces
	// of longer vectors are as long as the mailboxes take, and all are where lines move slowly: the wait for
	// the lines of one more message takes longer than is saved.
	PieceMin  = 16 << 10
	piecesFew = 32 << 10
	// Lengths up to which a call goes in pieces. Beyond them two ranks that share the work of a single copy
	// are faster, most of all where the memory is on huge pages.
	piecesMax          = 128 << 10
	piecesReducedMax   = 256 << 10
	piecesBlockMax     = 128 << 10
	piecesExchangedMax = 64 << 10
	// The same for a Bcast or Reduce of more ranks, which share processors: as much as the mailboxes hold at
	// once, so that a rank that only sends need not wait for a turn of its receiver.
	piecesSharedMax = 64 << 10
	// The same for each half of an Allreduce where bytes do not move quickly: the halves go at the same time.
	piecesHalfMax = 32 << 10
	// The same if two ranks combine nothing and write very slowly what they have read of each other.
	piecesVerySlow = 16 << 10
	// From this Call.Quick on, bytes move quickly enough for longer vectors if pulling them has more costs.
	quickLong = 64 << 10
)

// inPieces has the algorithms in pieces by operation.
var inPieces = map[Operation]algorithm{
	OpBcast:     {piecesName, fitsPieces, bcastPieces},
	OpReduce:    {piecesName, fitsPieces, reducePieces},
	OpAllreduce: {piecesName, fitsPieces, allreducePieces},
	OpAllgather: {piecesName, fitsPieces, allgatherPieces},
	OpAlltoall:  {piecesName, fitsPieces, alltoallPieces},

	OpReduceScatterBlock: {piecesName, fitsPieces, reduceScatterPieces},
	OpScan:               {piecesName, fitsPieces, scanPieces},
	OpExscan:             {piecesName, fitsPieces, scanPieces},
}

func fitsPieces(c *Call) bool {
	switch {
	case c.ElemSize > PieceMin || c.InPlace:
		return false
	case c.Operation == OpBcast || c.Operation == OpReduce:
		return true
	}
	return c.Size == 2
}

// suitsPieces reports whether a call does best in pieces. All ranks find the same.
func (c *Call) suitsPieces() bool {
	if !c.isQuick() || c.sharesProcessors() != (c.Size > 2) || !c.mayGoInPieces(c.Mailbox) {
		return false
	}
	if c.Size == 2 || c.Operation != OpReduce || c.InOrder {
		return true
	}
	op := &operations[OpReduce]
	best, _ := op.cheapest(c)
	return op.algorithms[best].name == binomialName // whose order of operands it has
}

// isQuick reports whether the bytes that go in pieces from one rank to the other, before anything else can
// happen, move faster so.
func (c *Call) isQuick() bool {
	switch n := c.bytes(); {
	case c.Operation == OpReduce && c.Size > 2:
		return true // messages up a tree wait for more turns than pieces do
	case c.Operation == OpAllreduce:
		half := n / 2
		return c.rewritesHalves() || n <= piecesReducedMax && (half <= c.Quick ||
			c.Predefined && half <= piecesHalfMax && n > directMessagesMax && c.Rewrite < RewriteVerySlow)
	case c.Size == 2 && n > c.rewrittenLimit():
		return false
	default:
		return n <= c.Quick
	}
}

// rewrittenLimit is the length up to which two ranks may write in pieces what they have read of each other,
// by how long that takes them.
func (c *Call) rewrittenLimit() int {
	switch o := c.Operation; {
	case c.Rewrite == RewriteQuick:
	case o == OpReduceScatterBlock:
		return piecesBlockMax / 2 // of each block; if they are pulled, nobody has read what is written
	case c.Rewrite == RewriteVerySlow && (o == OpBcast || o == OpAllgather || o == OpAlltoall):
		return piecesVerySlow // nothing is combined during the wait for lines
	case o == OpAllgather:
		return piecesExchangedMax
	}
	return c.piecesLimit()
}

// rewritesHalves reports whether an Allreduce does better in pieces than if the ranks pull, at lengths at
// which other calls do not: each would write the half that it combines over one that the other has pulled.
func (c *Call) rewritesHalves() bool { return c.Rewrite == RewriteSlow && c.Quick >= quickLong }

// suitsPiecesMore reports whether an Allreduce of more than directMax bytes does better in pieces than whole,
// although that fits the mailboxes: each rank combines half. Its bits must not depend on it.
func (c *Call) suitsPiecesMore() bool {
	return c.Operation == OpAllreduce && c.bytes() > directMax &&
		(c.Quick == QuickAlways || c.rewritesHalves()) &&
		(c.Predefined || c.InOrder || !c.Commutative) && c.suitsPieces()
}

// mayGoInPieces reports whether a call may go in pieces through mailboxes for messages of up to mailbox
// bytes. It calls no function value, so that c does not escape.
func (c *Call) mayGoInPieces(mailbox int) bool {
	return mailbox >= PieceMin && operations[c.Operation].pieces > 0 && fitsPieces(c) &&
		c.bytes() <= c.piecesLimit()
}

// piecesLimit is the length up to which a call may go in pieces, whatever the ranks' access to each other's
// memory is.
func (c *Call) piecesLimit() int {
	switch {
	case c.Size > 2:
		return piecesSharedMax
	case c.Operation == OpAllreduce:
		return 2 * piecesReducedMax
	case c.Operation == OpScan:
		return piecesReducedMax
	case c.Operation == OpReduceScatterBlock:
		return piecesBlockMax
	case c.Operation == OpAlltoall:
		return piecesExchangedMax
	}
	return piecesMax
}

// pieceBytes returns the length of a piece of n bytes, of whole elements.
func (c *Call) pieceBytes(n int) int {
	piece := PieceMin
	if n > piecesFew || c.Quick != QuickAlways {
		piece = max(piece, c.Mailbox)
	}
	return piece / c.ElemSize * c.ElemSize
}

// piecewise has do add the messages and steps of a round for each piece of n bytes, of whole elements. There
// is at least one round.
func (s *Schedule) piecewise(c *Call, n int, do func(from, to int)) {
	s.Mailboxes = c.Mailbox >= PieceMin
	piece := c.pieceBytes(n)
	for at := 0; ; at += piece {
		to := min(at+piece, n)
		do(at, to)
		s.round()
		if to == n {
			return
		}
	}
}

func bcastPieces(s *Schedule, c *Call) {
	buf := Span{Output, 0, c.bytes()}
	s.piecewise(c, buf.Len, func(from, to int) {
		if c.Rank != c.Root {
			s.recv(c.Root, buf.part(from, to))
			return
		}
		for distance := 1; distance < c.Size; distance++ {
			s.send((c.Rank+distance)%c.Size, buf.part(from, to))
		}
	})
}

func allgatherPieces(s *Schedule, c *Call) {
	own := Span{Input, 0, c.bytes()}
	s.exchangePieces(c, own, own)
}

func alltoallPieces(s *Schedule, c *Call) {
	block := func(rank int) Span { return Span{Input, rank * c.bytes(), c.bytes()} }
	s.exchangePieces(c, block(1-c.Rank), block(c.Rank))
}

// exchangePieces sends a block to the other rank, receives one from it, and copies this rank's own, both to
// their places in Output.
func (s *Schedule) exchangePieces(c *Call, out, own Span) {
	peer, n := 1-c.Rank, c.bytes()
	in, place := Span{Output, peer * n, n}, Span{Output, c.Rank * n, n}
	s.piecewise(c, n, func(from, to int) {
		s.recv(peer, in.part(from, to))
		s.send(peer, out.part(from, to))
		s.copy(place.part(from, to), own.part(from, to))
	})
}

// reducePieces has the root combine all pieces. Those that reducePull leaves to the other rank have the other
// rank's order of operands.
func reducePieces(s *Schedule, c *Call) {
	peer := 1 - c.Rank
	result, own := Span{Output, 0, c.bytes()}, Span{Input, 0, c.bytes()}
	switch {
	case c.Rank != c.Root:
		s.piecewise(c, own.Len, func(from, to int) { s.send(c.Root, own.part(from, to)) })
		return
	case c.Size != 2:
		s.combineTree(c, result, own)
		return
	}
	shared := own.Len
	if c.sharesWork(sharedReduceMin) {
		shared = c.reducedByRoot()
	}
	f := s.newPieceFold(c, own.Len)
	s.piecewise(c, own.Len, func(from, to int) {
		got := f.receive(s, c, result.part(from, to))
		cut := min(max(shared, from), to)
		f.combine(s, c, c.Rank, result.part(from, cut), own.part(from, cut), got.part(0, cut-from))
		f.combine(s, c, peer, result.part(cut, to), own.part(cut, to), got.part(cut-from, to-from))
	})
}

// combineTree has the root combine the pieces of all ranks, with the order of operands that reduceTree has.
func (s *Schedule) combineTree(c *Call, result, own Span) {
	t := tree{0, c.Size}
	if c.Commutative && !c.InOrder {
		t.top = c.Root
	}
	piece := min(c.pieceBytes(own.Len), own.Len)
	all := s.scratch(c.Size * piece)
	s.piecewise(c, own.Len, func(from, to int) {
		n := to - from
		vector := func(v int) Span { // of a vertex
			if v == 0 && t.rank(v) == c.Rank && !c.InOrder {
				return result.part(from, to)
			}
			return all.part(v*n, (v+1)*n)
		}
		for v := range c.Size {
			if t.rank(v) != c.Rank {
				s.recv(t.rank(v), vector(v))
			}
		}
		s.copy(vector(t.vertex(c.Rank)), own.part(from, to))
		if c.InOrder {
			s.combineAll(result.part(from, to), all.part(0, c.Size*n))
			return
		}
		for distance := 1; distance < c.Size; distance *= 2 {
			for v := 0; v+distance < c.Size; v += 2 * distance {
				s.reduce(vector(v), vector(v+distance), false)
			}
		}
		s.copy(result.part(from, to), vector(0))
	})
}

// allreducePieces has each rank combine its share of the vector for both, as allreducePull does.
func allreducePieces(s *Schedule, c *Call) {
	peer := 1 - c.Rank
	longest := c.share(Input, 1).Len
	f := s.newPieceFold(c, longest)
	part := func(buf Buffer, rank, from, to int) Span {
		all := c.share(buf, rank)
		return all.part(min(from, all.Len), min(to, all.Len))
	}
	s.piecewise(c, longest, func(from, to int) {
		result, own := part(Output, c.Rank, from, to), part(Input, c.Rank, from, to)
		got := f.receive(s, c, result)
		s.send(peer, part(Input, peer, from, to))
		f.combine(s, c, c.Rank, result, own, got)
	})
	s.piecewise(c, longest, func(from, to int) {
		s.recv(peer, part(Output, peer, from, to))
		s.send(peer, part(Output, c.Rank, from, to))
	})
}

// reduceScatterPieces has each rank combine its block, as reduceScatterPull does.
func reduceScatterPieces(s *Schedule, c *Call) {
	blocks := c.reduced()
	own, others := blocks.span(Input, c.Rank), blocks.span(Input, 1-c.Rank)
	result := Span{Output, 0, own.Len}
	f := s.newPieceFold(c, own.Len)
	s.piecewise(c, own.Len, func(from, to int) {
		got := f.receive(s, c, result.part(from, to))
		s.send(1-c.Rank, others.part(from, to))
		f.combine(s, c, c.Rank, result.part(from, to), own.part(from, to), got)
	})
}

// scanPieces has rank 1 combine the vector of rank 0 with its own, in this order, or receive it.
func scanPieces(s *Schedule, c *Call) {
	own, result, inclusive := Span{Input, 0, c.bytes()}, Span{Output, 0, c.bytes()}, c.Operation == OpScan
	if c.Rank == 0 {
		s.piecewise(c, own.Len, func(from, to int) {
			s.send(1, own.part(from, to))
			if inclusive {
				s.copy(result.part(from, to), own.part(from, to))
			}
		})
		return
	}
	if !inclusive {
		s.piecewise(c, own.Len, func(from, to int) { s.recv(0, result.part(from, to)) })
		return
	}
	f := s.newPieceFold(c, own.Len)
	s.piecewise(c, own.Len, func(from, to int) {
		got := f.receive(s, c, result.part(from, to))
		f.combine(s, c, 0, result.part(from, to), own.part(from, to), got)
	})
}

// pieceFold combines pieces of two ranks' vectors.
type pieceFold struct{ got, both Span } // scratch, as far as the call needs it

// newPieceFold reserves the scratch memory for the pieces of n bytes.
func (s *Schedule) newPieceFold(c *Call, n int) (f pieceFold) {
	n = min(n, c.pieceBytes(n))
	if !c.combinesInput() {
		f.got = s.scratch(n)
	}
	if c.InOrder {
		f.both = s.scratch(2 * n)
	}
	return f
}

// receive receives the other rank's vector for a part of the result, and returns where it is.
func (f *pieceFold) receive(s *Schedule, c *Call, result Span) (got Span) {
	if got = result; !c.combinesInput() {
		got = f.got.part(0, result.Len)
	}
	s.recv(1-c.Rank, got)
	return got
}

// combine combines a part of both vectors, with the order of operands that the given rank has in the pulling
// algorithms.
func (f *pieceFold) combine(s *Schedule, c *Call, rank int, result, own, got Span) {
	n, peer := own.Len, 1-c.Rank
	switch {
	case n == 0:
	case c.combinesInput(): // an operator whose operands may be exchanged without any difference
		s.reduce(result, own, false)
	case c.InOrder:
		s.copy(f.both.part(c.Rank*n, (c.Rank+1)*n), own)
		s.copy(f.both.part(peer*n, (peer+1)*n), got)
		s.combineAll(result, f.both.part(0, 2*n))
	default:
		first := 0
		if c.Commutative {
			first = rank
		}
		s.copy(result, own)
		s.reduce(result, got, first == peer)
	}
}
