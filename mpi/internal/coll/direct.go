package coll

import "math"

// In the direct algorithms each rank sends all ranks what they need in one round, and combines what it
// receives. That takes many messages, but a rank waits only once: it suits short messages that cost little,
// as through the mailboxes of ranks that share a host.

const directName = "direct"

// Ranks that have mailboxes use the direct algorithms up to these sizes, in bytes of one message; without
// mailboxes or beyond these sizes, cost.go may choose them. In an Allreduce every rank combines all vectors,
// so its limit falls with the number of ranks. In a Scan only the last rank does, and other algorithms
// distribute that work.
const (
	directMax         = 8 << 10
	directCombinedMax = 32 << 10 // divided by the number of ranks; of a Scan by its square
	// Divided by the square of the number of ranks. Beyond it the root of a Bcast copies its buffer once, for
	// all others to read at the same time, if each has a processor.
	directBcastMax = 128 << 10
	// Up to this size an Allreduce of two ranks whose halves would have to be pulled is direct, by messages:
	// it waits once, and with halves twice.
	directMessagesMax = 32 << 10
	// The same where the ranks write very slowly what they have read of each other.
	directMessagesMaxVerySlow = 1 << 20
	// Between these sizes a Reduce of two ranks is direct, by messages: both ranks copy a half of the only
	// message, and the root combines it. Where bytes move quickly, that is so from the end of pieces on. The
	// root of a longer one need not have room for the whole message.
	directReduceMin         = 512 << 10
	directReduceMinVerySlow = 1 << 20 // where the ranks write very slowly what they have read of each other
	directReduceMax         = 16 << 20
	// For up to so many ranks that share processors: in an Exscan, they are direct at any length.
	directSharedRanks    = 4
	directSharedBlockMax = 512 << 10 // of a ReduceScatterBlock
	directSharedScanMax  = 16 << 10
)

// direct has the direct algorithms by operation.
var direct = map[Operation]algorithm{
	OpBarrier:   {directName, nil, barrierDirect},
	OpBcast:     {directName, nil, bcastDirect},
	OpReduce:    {directName, nil, reduceDirect},
	OpAllreduce: {directName, nil, allreduceDirect},
	OpAllgather: {directName, nil, allgatherDirect},
	OpAlltoall:  {directName, outsideOfPlace, alltoallDirect},

	OpReduceScatter:      {directName, nil, reduceScatterDirect},
	OpReduceScatterBlock: {directName, nil, reduceScatterDirect},
	OpScan:               {directName, nil, scanDirect},
	OpExscan:             {directName, nil, scanDirect},
}

func outsideOfPlace(c *Call) bool { return !c.InPlace }

// mailboxLimit returns the length of the longest message for which, with mailboxes, neither a tree nor
// pulling is faster.
func (c *Call) mailboxLimit() int {
	switch {
	case c.doubles():
		return max(directMax, c.bytes())
	case c.Operation == OpAllreduce:
		return directCombinedMax / c.Size
	case c.Operation == OpScan || c.Operation == OpExscan:
		return directCombinedMax / (c.Size * c.Size)
	case c.Operation == OpBcast && c.Pull && c.Size > 2 && !c.sharesProcessors():
		return min(directMax, c.directBcastLimit())
	case c.sharesProcessors() && (c.Operation == OpAllgather || c.Operation == OpAlltoall):
		return eagerMax
	}
	return directMax
}

// directBcastLimit is the length up to which the root of a Bcast sends its buffer to every other rank, if
// each has a processor.
func (c *Call) directBcastLimit() int { return directBcastMax / (c.Size * c.Size) }

// suitsMailboxes reports whether a call does best through mailboxes. All ranks find the same.
func suitsMailboxes(c *Call) bool {
	return c.Mailbox > 0 && c.longestMessage() <= min(c.mailboxLimit(), c.Mailbox) && !c.suitsPiecesMore()
}

// suitsDirectMessages reports whether a call that does not suit mailboxes does best in one round of messages,
// which go as the fabric's costs say. The bits of an Allreduce must not depend on it. All ranks find the
// same.
func (c *Call) suitsDirectMessages() bool {
	if c.sharesProcessors() {
		return c.Fabric == Shared && c.Size <= directSharedRanks &&
			c.longestMessage() <= c.directSharedLimit()
	}
	if c.Operation == OpReduceScatter || c.Operation == OpReduceScatterBlock {
		return c.Fabric != Shared && c.Size == 2 // every algorithm exchanges once, and this one copies least
	}
	return c.Size == 2 && c.Pull && c.Predefined && !c.InOrder && c.withinDirectMessages() && !c.suitsPieces()
}

// withinDirectMessages reports whether the length of a Reduce or Allreduce of two ranks suits messages.
func (c *Call) withinDirectMessages() bool {
	least, most := pullMin, directMessagesMax
	switch c.Operation {
	case OpAllreduce:
		if c.Rewrite == RewriteVerySlow {
			most = directMessagesMaxVerySlow
		}
	case OpReduce:
		most = directReduceMax
		switch {
		case c.Rewrite == RewriteVerySlow:
			least = directReduceMinVerySlow
		case c.Quick < quickLong:
			least = directReduceMin
		}
	default:
		return false
	}
	return c.bytes() >= least && c.bytes() <= most
}

// directSharedLimit is the length up to which few ranks that share processors send messages directly: in more
// rounds, or when they pull, they wait for more turns.
func (c *Call) directSharedLimit() int {
	switch c.Operation {
	case OpReduceScatterBlock:
		return directSharedBlockMax
	case OpScan:
		return directSharedScanMax
	case OpExscan:
		return math.MaxInt
	}
	return -1
}

// OutgrowsMailboxes reports whether a call may go through mailboxes if they take messages of up to larger
// bytes. The result is the same at all ranks, also at one that does not know yet what their access to each
// other's memory is.
func (c *Call) OutgrowsMailboxes(larger int) bool {
	n := c.longestMessage()
	if c.Mailbox == 0 || n <= c.Mailbox {
		return false
	}
	if _, ok := direct[c.Operation]; ok && n <= min(c.mailboxLimit(), larger) {
		return true
	}
	return !c.mayGoInPieces(c.Mailbox) && c.mayGoInPieces(larger)
}

// inMailboxes sends the messages of a schedule through mailboxes if they fit.
func (s *Schedule) inMailboxes(c *Call) {
	s.Mailboxes = c.Mailbox > 0 && c.longestMessage() <= c.Mailbox
}

// longestMessage returns the length of the longest message of a direct algorithm, in bytes.
func (c *Call) longestMessage() int {
	if c.Operation == OpReduceScatter {
		return c.Recv.longest(c.Size)
	}
	return c.bytes()
}

func barrierDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	s.exchangeAll(c.Rank, c.Size, func(int) Span { return Span{} }, func(int) Span { return Span{} })
	s.round()
}

// exchangeAll sends a span to every other rank and receives one from each.
func (s *Schedule) exchangeAll(rank, size int, out, in func(peer int) Span) {
	for distance := 1; distance < size; distance++ {
		peer := (rank - distance + size) % size
		s.recv(peer, in(peer))
	}
	for distance := 1; distance < size; distance++ {
		peer := (rank + distance) % size
		s.send(peer, out(peer))
	}
}

func bcastDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	buf := Span{Output, 0, c.bytes()}
	if c.Rank != c.Root {
		s.recv(c.Root, buf)
	} else {
		for distance := 1; distance < c.Size; distance++ {
			s.send((c.Rank+distance)%c.Size, buf)
		}
	}
	s.round()
}

func allreduceDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	n := c.bytes()
	all, vector := s.vectors(c, n)
	s.exchangeAll(c.Rank, c.Size, func(int) Span { return Span{Input, 0, n} }, vector)
	s.combine(c, Span{Output, 0, n}, Span{Input, 0, n}, all, vector)
	s.round()
}

func reduceDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	n := c.bytes()
	if c.Rank != c.Root {
		s.send(c.Root, Span{Input, 0, n})
		s.round()
		return
	}
	if c.combinesInput() {
		s.recvAndCombine(c)
		return
	}
	all, vector := s.vectors(c, n)
	for peer := range c.Size {
		if peer != c.Rank {
			s.recv(peer, vector(peer))
		}
	}
	s.combine(c, Span{Output, 0, n}, Span{Input, 0, n}, all, vector)
	s.round()
}

// recvAndCombine receives the other rank's vector into the result, and combines this rank's own into it.
func (s *Schedule) recvAndCombine(c *Call) {
	result := Span{Output, 0, c.bytes()}
	s.recv(1-c.Rank, result)
	s.reduce(result, Span{Input, 0, c.bytes()}, false)
	s.round()
}

// combinesInput reports whether a rank of two receives the other's vector into the result, and combines its
// own vector into it.
func (c *Call) combinesInput() bool {
	return c.Size == 2 && c.Commutative && c.OwnRight && !c.InOrder
}

// vectors reserves room for the vectors of all other ranks, of n bytes each, and for this rank's own if all
// are combined at once.
func (s *Schedule) vectors(c *Call, n int) (all Span, vector func(rank int) Span) {
	vectors := c.Size - 1
	if c.InOrder {
		vectors = c.Size
	}
	all = s.scratch(vectors * n)
	return all, func(rank int) Span {
		if rank > c.Rank && !c.InOrder {
			rank--
		}
		return all.part(rank*n, (rank+1)*n)
	}
}

// combine combines this rank's vector and the others' into result, in rank order, so that the result is the
// same at every rank, to the last bit.
func (s *Schedule) combine(c *Call, result, own, all Span, vector func(rank int) Span) {
	if c.InOrder {
		s.copy(vector(c.Rank), own)
		s.combineAll(result, all)
		return
	}
	s.copy(result, own)
	for rank := 1; rank < c.Rank; rank++ {
		s.reduce(vector(0), vector(rank), false)
	}
	if c.Rank > 0 {
		s.reduce(result, vector(0), true)
	}
	for rank := c.Rank + 1; rank < c.Size; rank++ {
		s.reduce(result, vector(rank), false)
	}
}

func reduceScatterDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	blocks := c.reduced()
	block := func(rank int) Span { return blocks.span(Input, rank) }
	own := block(c.Rank)
	all, vector := s.vectors(c, own.Len)
	output, result := s.blockOfResult(c, own.Len)
	s.exchangeAll(c.Rank, c.Size, block, vector)
	s.combine(c, result, own, all, vector)
	if c.InPlace {
		s.copy(output, result)
	}
	s.round()
}

// scanDirect sends every rank's vector to all higher ranks, which combine those from below.
func scanDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	n, inclusive := c.bytes(), c.Operation == OpScan
	own, result := Span{Input, 0, n}, Span{Output, 0, n}
	intoResult := c.Rank > 0 && !c.InOrder && c.scansIntoResult()
	vectors := c.Rank
	if c.InOrder && inclusive {
		vectors++
	}
	if intoResult {
		vectors--
	}
	all := s.scratch(vectors * n)
	vector := func(rank int) Span { // from a rank below, or the own one
		if intoResult {
			if rank == 0 {
				return result
			}
			rank--
		}
		return all.part(rank*n, (rank+1)*n)
	}
	for peer := c.Rank - 1; peer >= 0; peer-- {
		s.recv(peer, vector(peer))
	}
	for peer := c.Rank + 1; peer < c.Size; peer++ {
		s.send(peer, own)
	}
	switch {
	case c.InOrder && vectors > 0:
		if inclusive {
			s.copy(vector(c.Rank), own)
		}
		s.combineAll(result, all)
	case c.Rank == 0 && inclusive:
		s.copy(result, own)
	case c.Rank > 0:
		for rank := 1; rank < c.Rank; rank++ {
			s.reduce(vector(0), vector(rank), false)
		}
		switch {
		case intoResult && inclusive:
			s.reduce(result, own, false)
		case inclusive:
			s.copy(result, own)
			s.reduce(result, vector(0), true)
		case !intoResult:
			s.copy(result, vector(0))
		}
	}
	s.round()
}

func allgatherDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	n := c.bytes()
	own := Span{Input, 0, n}
	block := func(rank int) Span { return Span{Output, rank * n, n} }
	s.exchangeAll(c.Rank, c.Size, func(int) Span { return own }, block)
	s.copy(block(c.Rank), own)
	s.round()
}

func alltoallDirect(s *Schedule, c *Call) {
	s.inMailboxes(c)
	n := c.bytes()
	s.exchangeAll(c.Rank, c.Size, func(peer int) Span { return Span{Input, peer * n, n} },
		func(peer int) Span { return Span{Output, peer * n, n} })
	s.copy(Span{Output, c.Rank * n, n}, Span{Input, c.Rank * n, n})
	s.round()
}

// ExchangeAll builds a schedule in which every rank sends its Input, of bytes bytes, to every other rank, and
// receives theirs into the blocks of Output.
func ExchangeAll(s *Schedule, rank, size, bytes int) {
	s.Reset()
	s.exchangeAll(rank, size, func(int) Span { return Span{Input, 0, bytes} },
		func(peer int) Span { return Span{Output, peer * bytes, bytes} })
	s.round()
}
