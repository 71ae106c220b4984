package coll

// In the pulling algorithms each rank reads the bytes that it needs directly from the memory of other ranks:
// a single copy. Two ranks that share the work of a Bcast or Reduce also push: one writes into the memory of
// the other. Empty messages tell when memory may be read or written, and when that is done. That suits long
// vectors of ranks that share a host and may read each other's memory.
//
// Every rank has the same number of rounds, and a message of one round is received in that round.

const pullName = "pull"

// Lengths from which the pulling algorithms are used, in bytes of one message.
const (
	pullMin = 8 << 10
	// of two ranks, and of ranks that share processors: the root's wait for all must pay off
	pullBcastMin = 16 << 10
	// Length up to which a root copies its buffer for several others to read. For one other the limit is
	// Call.Stage, since that saves only one system call.
	stageBcast = 32 << 10
	// Between these lengths a root copies one piece while its peers, if they have CPUs of their own, read the
	// one before. Longer buffers leave the caches, so the copy does not pay.
	pipelineBcastMin = 64 << 10
	pipelineBcastMax = 1 << 20
	pipelinePieces   = 4 // the least number of pieces, of up to pipelinePiece bytes each
	pipelinePiece    = 64 << 10
	// From this length on, ranks with CPUs of their own read the root's memory itself if it is on huge pages.
	// The system locks a table for each smaller page that it looks up, so that many readers wait for one
	// another, longer than the copy through the stage takes.
	hugeBcastMin = 256 << 10
	// stageBlock is the length of the longest block that a rank with a CPU of its own copies to the stage,
	// where others read it; stageBlockMany likewise if more than stageBlockFew ranks read the block at once.
	stageBlock     = 8 << 10
	stageBlockMany = 128 << 10
	stageBlockFew  = 8
	// From these lengths on, two ranks with a CPU each share the work. In a Reduce the share is moved twice.
	sharedBcastMin  = 64 << 10
	sharedReduceMin = 128 << 10
	// From this length of a rank's blocks on, messages are faster if ranks share CPUs, as a rank can then
	// leave before the others have finished.
	pullBlocksLimit = 512 << 10
	// pullChunk is the number of bytes of a vector that are read and then combined, in the cache, at a time.
	pullChunk = 128 << 10

	pageBytes = 4 << 10 // page of memory
)

// pulling has the pulling algorithms by operation.
var pulling = map[Operation]algorithm{
	OpBcast:     {pullName, pulls, bcastPull},
	OpReduce:    {pullName, pulls, reducePull},
	OpAllreduce: {pullName, pulls, allreducePull},
	OpAllgather: {pullName, pulls, allgatherPull},
	OpAlltoall:  {pullName, pullsOutsideOfPlace, alltoallPull},

	OpReduceScatter:      {pullName, pulls, reduceScatterPull},
	OpReduceScatterBlock: {pullName, pulls, reduceScatterPull},
}

func pulls(c *Call) bool { return c.Pull }

func pullsOutsideOfPlace(c *Call) bool { return c.Pull && !c.InPlace }

// suitsPull reports whether pulling is the fastest for a call. The result is the same at all ranks.
func suitsPull(c *Call) bool {
	if suitsMessages(c) {
		return false
	}
	switch c.Operation {
	case OpReduceScatter, OpReduceScatterBlock:
		return c.reduced().before(c.Size) >= pullMin
	case OpBcast:
		return c.bytes() >= c.pullBcastMin() && c.Count >= c.Size
	case OpReduce:
		return c.bytes() >= pullMin && c.Size == 2
	}
	return c.bytes() >= pullMin && c.Count >= c.Size
}

// pullBcastMin is the length from which a Bcast pulls if no mailbox takes it.
func (c *Call) pullBcastMin() int {
	if c.Size == 2 || c.sharesProcessors() {
		return pullBcastMin
	}
	return min(pullBcastMin, c.directBcastLimit()+1)
}

// suitsMessages reports whether messages are faster than pulling, between ranks that share processors.
func suitsMessages(c *Call) bool {
	if !c.sharesProcessors() {
		return false
	}
	switch c.Operation {
	case OpAllgather:
		return c.Size*c.bytes() >= pullBlocksLimit
	case OpAlltoall:
		return c.bytes() <= eagerMax || c.Size*c.bytes() >= pullBlocksLimit
	}
	return false
}

// pull reads a span of a peer's memory.
func (s *Schedule) pull(peer int, dst, src Span) {
	if dst.Len > 0 {
		s.steps = append(s.steps, Step{Kind: Pull, Peer: peer, Src: src, Dst: dst})
	}
}

// push writes a span of this rank's to a peer's memory.
func (s *Schedule) push(peer int, dst, src Span) {
	if src.Len > 0 {
		s.steps = append(s.steps, Step{Kind: Push, Peer: peer, Src: src, Dst: dst})
	}
}

// publish lets peers read a span of a buffer.
func (s *Schedule) publish(span Span) { s.steps = append(s.steps, Step{Kind: Publish, Src: span}) }

// exposing begins a schedule in which peers read the given buffers.
func (s *Schedule) exposing(buffers ...Buffer) {
	s.Mailboxes, s.Pulls = true, true
	for _, b := range buffers {
		s.Exposed |= 1 << b
	}
}

// signalAll has every rank signal every other rank, and wait for the signals of all.
func (s *Schedule) signalAll(c *Call) {
	nothing := func(int) Span { return Span{} }
	s.exchangeAll(c.Rank, c.Size, nothing, nothing)
}

func bcastPull(s *Schedule, c *Call) {
	buf := Span{Output, 0, c.bytes()}
	switch {
	case c.sharesProcessors():
	case c.sharesWork(sharedBcastMin):
		bcastShared(s, c, buf)
		return
	case buf.Len >= pipelineBcastMin && buf.Len <= pipelineBcastMax && !c.readsHugePages():
		bcastPullPieces(s, c, buf)
		return
	}
	if c.Rank != c.Root {
		s.exposing()
		s.recv(c.Root, Span{})
		// Each begins at another place, so that no line is the next for all of them.
		from := 0
		if buf.Len > stageBcast {
			from = buf.Len / c.Size * c.Rank &^ (pageBytes - 1)
		}
		s.pull(c.Root, buf.part(from, buf.Len), buf.part(from, buf.Len))
		s.pull(c.Root, buf.part(0, from), buf.part(0, from))
		s.round()
		s.send(c.Root, Span{})
		s.round()
		return
	}
	s.exposing(Output)
	s.Stages = c.bytes() <= stageBcast && (c.Size > 2 || c.bytes() <= c.Stage)
	signalOthers(c, s.send)
	s.round()
	signalOthers(c, s.recv)
	s.round()
}

// readsHugePages reports whether a Bcast's receivers read from the huge pages that the root's buffer is on.
func (c *Call) readsHugePages() bool { return c.HugePages && c.bytes() >= hugeBcastMin }

// sharesWork reports whether two ranks, each on its own processor, share the work for one rank's result, from
// least bytes on.
func (c *Call) sharesWork(least int) bool {
	return c.Size == 2 && !c.sharesProcessors() && c.bytes() >= least
}

// bcastShared has the root write one half of the buffer to the other rank, which reads the other half.
func bcastShared(s *Schedule, c *Call, buf Span) {
	peer, cut := 1-c.Rank, buf.Len/2&^(pageBytes-1)
	front, back := buf.part(0, cut), buf.part(cut, buf.Len)
	s.exposing(Output)
	s.signalAll(c)
	if c.Rank == c.Root {
		s.push(peer, back, back)
	} else {
		s.Written = 1 << Output
		s.pull(peer, front, front)
	}
	s.round()
	s.signalAll(c)
	s.round()
}

// signalOthers sends an empty message to all other ranks, or receives one from each.
func signalOthers(c *Call, message func(peer int, span Span)) {
	for distance := 1; distance < c.Size; distance++ {
		message((c.Rank+distance)%c.Size, Span{})
	}
}

// bcastPullPieces has the root publish one piece in each round but the last two, and the others read it in
// the next.
func bcastPullPieces(s *Schedule, c *Call, buf Span) {
	if c.Rank == c.Root {
		s.exposing(Output)
		s.Late, s.Stages = 1<<Output, true
	} else {
		s.exposing()
	}
	piece := min(buf.Len/pipelinePieces, pipelinePiece)
	for at := -piece; at < buf.Len; at += piece {
		if c.Rank == c.Root {
			signalOthers(c, s.send)
			if next := at + piece; next < buf.Len {
				s.publish(buf.part(next, min(next+piece, buf.Len)))
			}
		} else {
			s.recv(c.Root, Span{})
			if at >= 0 {
				part := buf.part(at, min(at+piece, buf.Len))
				s.pull(c.Root, part, part)
			}
		}
		s.round()
	}
	if c.Rank == c.Root {
		signalOthers(c, s.recv)
	} else {
		s.send(c.Root, Span{})
	}
	s.round()
}

// reducePull has the root read the vectors of all others, combine them, and release their ranks.
func reducePull(s *Schedule, c *Call) {
	if c.sharesWork(sharedReduceMin) {
		reduceShared(s, c)
		return
	}
	if c.Rank != c.Root {
		s.exposing(Input)
		s.Stages = c.bytes() <= c.Stage
		s.send(c.Root, Span{})
		s.round()
		s.recv(c.Root, Span{})
		s.round()
		return
	}
	s.exposing()
	signalOthers(c, s.recv)
	result, own := Span{Output, 0, c.bytes()}, Span{Input, 0, c.bytes()}
	if c.combinesInput() {
		s.addToPulled(c, result, own)
		return
	}
	s.combinePulled(c, result, own)
	s.round()
	signalOthers(c, s.send)
	s.round()
}

// reduceShared has the other rank combine a third of the vector and write the result to the root, which
// combines the rest. Copying a byte takes about twice as long as combining it, so both take equally long.
func reduceShared(s *Schedule, c *Call) {
	cut := c.reducedByRoot()
	result, own := Span{Output, 0, c.bytes()}, Span{Input, 0, c.bytes()}
	if c.Rank == c.Root {
		s.exposing(Input, Output)
		s.Written = 1 << Output
		s.signalAll(c)
		s.combinePulled(c, result.part(0, cut), own.part(0, cut))
	} else {
		s.exposing(Input)
		s.signalAll(c)
		f := s.newFold(c, own.Len-cut)
		room := s.scratch(f.chunk)
		for at := cut; at < own.Len; at += f.chunk {
			to := min(at+f.chunk, own.Len)
			mine := room.part(0, to-at)
			f.pulled(s, c, mine, own.part(at, to))
			s.push(c.Root, result.part(at, to), mine)
		}
	}
	s.round()
	s.signalAll(c)
	s.round()
}

// reducedByRoot returns the number of bytes that the root combines in reduceShared.
func (c *Call) reducedByRoot() int { return 2 * c.Count / 3 * c.ElemSize }

// addToPulled ends a Reduce of two ranks at a root that combines its Input into what it has pulled.
func (s *Schedule) addToPulled(c *Call, result, own Span) {
	peer := 1 - c.Rank
	chunk := max(pullChunk/c.ElemSize, 1) * c.ElemSize
	for at := 0; ; at += chunk {
		to := min(at+chunk, own.Len)
		s.pull(peer, result.part(at, to), own.part(at, to))
		if to == own.Len {
			s.round()
			s.send(peer, Span{})
			s.reduce(result.part(at, to), own.part(at, to), false)
			s.round()
			return
		}
		s.reduce(result.part(at, to), own.part(at, to), false)
	}
}

// allreducePull has each rank combine a share of the vector for all, and read the other shares.
func allreducePull(s *Schedule, c *Call) {
	s.exposing(Input, Output)
	s.Late, s.Stages = 1<<Output, c.Size > 2 || c.bytes() <= c.StageByBoth
	s.signalAll(c)
	mine := c.share(Output, c.Rank)
	s.combinePulled(c, mine, c.share(Input, c.Rank))
	s.publish(mine)
	s.round()

	s.signalAll(c)
	for distance := 1; distance < c.Size; distance++ {
		peer := (c.Rank + distance) % c.Size
		s.pull(peer, c.share(Output, peer), c.share(Output, peer))
	}
	s.round()
	s.signalAll(c)
	s.round()
}

// share returns the part of the vector that a rank combines for all.
func (c *Call) share(buf Buffer, rank int) Span {
	from, to := rank*c.Count/c.Size, (rank+1)*c.Count/c.Size
	return Span{buf, from * c.ElemSize, (to - from) * c.ElemSize}
}

// reduceScatterPull publishes all blocks but the one that this rank combines. In place, the result is stored
// only when the others have read the memory that it overwrites.
func reduceScatterPull(s *Schedule, c *Call) {
	blocks := c.reduced()
	mine := blocks.span(Input, c.Rank)
	output, result := s.blockOfResult(c, mine.Len)
	s.exposing(Input)
	s.Stages = c.Size > 2 || mine.Len <= c.StageByBoth
	s.publishOthers(Span{Input, 0, blocks.before(c.Size)}, mine)
	s.signalAll(c)
	s.combinePulled(c, result, mine)
	s.round()
	s.signalAll(c)
	if c.InPlace {
		s.copy(output, result)
	}
	s.round()
}

// publishOthers begins a schedule that, if it stages, copies all but one part of Input for peers to read.
func (s *Schedule) publishOthers(all, but Span) {
	s.Late = 1 << Input
	s.publish(all.part(0, but.Off))
	s.publish(all.part(but.Off+but.Len, all.Len))
	s.round()
}

// combinePulled combines a part of every rank's Input into mine.
func (s *Schedule) combinePulled(c *Call, mine, part Span) {
	f := s.newFold(c, mine.Len)
	for at := 0; at < mine.Len; at += f.chunk {
		to := min(at+f.chunk, mine.Len)
		f.pulled(s, c, mine.part(at, to), part.part(at, to))
	}
}

// fold combines pulled vectors, up to chunk bytes at a time.
type fold struct {
	chunk       int
	first, next Span // scratch
}

// newFold reserves the scratch memory for combining vectors of n bytes.
func (s *Schedule) newFold(c *Call, n int) (f fold) {
	atOnce := pullChunk
	if c.InOrder {
		atOnce /= c.Size
	}
	f.chunk = min(max(atOnce/c.ElemSize, 1)*c.ElemSize, max(n, 1))
	switch {
	case c.combinesInput():
	case c.InOrder:
		f.first = s.scratch(c.Size * f.chunk)
	case c.Commutative:
		f.first = s.scratch(f.chunk)
	default:
		f.first, f.next = s.scratch(f.chunk), s.scratch(f.chunk)
	}
	return f
}

// pulled combines a part of every rank's Input, at most a chunk, into dst.
func (f *fold) pulled(s *Schedule, c *Call, dst, part Span) {
	switch n := part.Len; {
	case c.combinesInput():
		s.pull(1-c.Rank, dst, part)
		s.reduce(dst, part, false)
	case c.InOrder:
		s.gatherPulled(c, dst, part, f.first.part(0, c.Size*n))
	default:
		s.foldPulled(c, dst, part, f.first.part(0, n), f.next.part(0, n))
	}
}

// gatherPulled pulls the part of every rank into all, and combines these at once.
func (s *Schedule) gatherPulled(c *Call, dst, part, all Span) {
	for rank := range c.Size {
		slot := all.part(rank*dst.Len, (rank+1)*dst.Len)
		if rank == c.Rank {
			s.copy(slot, part)
		} else {
			s.pull(rank, slot, part)
		}
	}
	s.combineAll(dst, all)
}

// foldPulled combines the parts of one rank after another, in rank order unless the operator is commutative.
func (s *Schedule) foldPulled(c *Call, dst, part, first, next Span) {
	if c.Commutative || c.Rank == 0 {
		s.copy(dst, part)
		for peer := range c.Size {
			if peer != c.Rank {
				s.pull(peer, first, part)
				s.reduce(dst, first, false)
			}
		}
		return
	}
	s.pull(0, first, part)
	for peer := 1; peer < c.Rank; peer++ {
		s.pull(peer, next, part)
		s.reduce(first, next, false)
	}
	s.copy(dst, part)
	s.reduce(dst, first, true)
	for peer := c.Rank + 1; peer < c.Size; peer++ {
		s.pull(peer, next, part)
		s.reduce(dst, next, false)
	}
}

func allgatherPull(s *Schedule, c *Call) {
	s.exposing(Input)
	s.Stages = c.stagesBlocks(c.Size > stageBlockFew)
	s.pullBlocks(c, Span{Input, 0, c.bytes()})
}

// alltoallPull publishes all blocks but this rank's own. It has a round for that even if it copies no memory,
// since other ranks may.
func alltoallPull(s *Schedule, c *Call) {
	own := Span{Input, c.Rank * c.bytes(), c.bytes()}
	s.exposing(Input)
	s.Stages = c.stagesBlocks(false)
	s.publishOthers(Span{Input, 0, c.Size * own.Len}, own)
	s.pullBlocks(c, own)
}

// stagesBlocks reports whether a rank copies its blocks for others to read; many ranks may read the same one.
func (c *Call) stagesBlocks(many bool) bool {
	switch {
	case c.Size == 2:
		return c.bytes() <= c.StageByBoth
	case c.sharesProcessors():
		return c.Operation != OpAlltoall // of which each block is read once
	case many:
		return c.bytes() <= stageBlockMany
	}
	return c.bytes() <= stageBlock
}

// pullBlocks copies a block of Input from every rank, including this one, to Output, in rank order. The block
// is at the same place at all ranks.
func (s *Schedule) pullBlocks(c *Call, block Span) {
	s.signalAll(c)
	s.copy(Span{Output, c.Rank * block.Len, block.Len}, block)
	for distance := 1; distance < c.Size; distance++ {
		peer := (c.Rank + distance) % c.Size
		s.pull(peer, Span{Output, peer * block.Len, block.Len}, block)
	}
	s.round()
	s.signalAll(c)
	s.round()
}
