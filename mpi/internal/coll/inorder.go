package coll

// The in-order algorithms bring all contributions to an element to one rank, uncombined, and combine them
// there in one step, in rank order. So the result depends on the contributions alone, also for operators that
// are not associative to the last bit, and for those that combine any number of operands at once. The direct
// and the pulling algorithms do so too if Call.InOrder is set.

const inOrderName = "in-order"

// inOrderWhole is the largest vector, in bytes, that every rank combines on its own from all ranks' vectors;
// of longer ones each rank combines a share.
const inOrderWhole = 1 << 10

var inOrder = map[Operation]algorithm{
	OpReduce:             {inOrderName, nil, reduceInOrder},
	OpAllreduce:          {inOrderName, nil, reduceInOrder},
	OpReduceScatter:      {inOrderName, nil, reduceScatterInOrder},
	OpReduceScatterBlock: {inOrderName, nil, reduceScatterInOrder},
	OpScan:               {inOrderName, nil, scanInOrder},
	OpExscan:             {inOrderName, nil, scanInOrder},
}

// combineAll appends a Combine of the consecutive vectors in src into dst.
func (s *Schedule) combineAll(dst, src Span) {
	if dst.Len > 0 {
		s.steps = append(s.steps, Step{Kind: Combine, Src: src, Dst: dst})
	}
}

// exchangeSome does what exchangeAll does with a few ranks at a time. It leaves the last round open.
func (s *Schedule) exchangeSome(rank, size int, out, in func(peer int) Span) {
	s.someAtATime(rank, size, func(peer int) { s.recv(peer, in(peer)) },
		func(peer int) { s.send(peer, out(peer)) })
}

// someAtATime calls recv and send for every other rank, those for a few ranks in a round. It leaves the last
// round open.
func (s *Schedule) someAtATime(rank, size int, recv, send func(peer int)) {
	for first := 1; first < size; first += alltoallWindow {
		if first > 1 {
			s.round()
		}
		last := min(first+alltoallWindow, size)
		for distance := first; distance < last; distance++ {
			recv((rank - distance + size) % size)
		}
		for distance := first; distance < last; distance++ {
			send((rank + distance) % size)
		}
	}
}

// combineShare combines this rank's share of every rank's input into dst.
func (s *Schedule) combineShare(c *Call, dst Span, share func(rank int) Span) {
	n := dst.Len
	all := s.scratch(c.Size * n)
	slot := func(rank int) Span { return all.part(rank*n, (rank+1)*n) }
	s.exchangeSome(c.Rank, c.Size, share, slot)
	s.copy(slot(c.Rank), share(c.Rank))
	s.combineAll(dst, all)
	s.round()
}

func reduceInOrder(s *Schedule, c *Call) {
	everywhere := c.Operation == OpAllreduce
	if c.bytes() <= inOrderWhole && everywhere {
		whole := func(int) Span { return Span{Input, 0, c.bytes()} }
		s.combineShare(c, Span{Output, 0, c.bytes()}, whole)
		return
	}
	share := func(buf Buffer, rank int) Span {
		from, to := rank*c.Count/c.Size, (rank+1)*c.Count/c.Size
		return Span{buf, from * c.ElemSize, (to - from) * c.ElemSize}
	}
	mine := share(Output, c.Rank)
	if !everywhere && c.Rank != c.Root {
		mine = s.scratch(mine.Len)
	}
	s.combineShare(c, mine, func(rank int) Span { return share(Input, rank) })
	result := func(rank int) Span { return share(Output, rank) }
	switch {
	case everywhere:
		s.exchangeSome(c.Rank, c.Size, func(int) Span { return mine }, result)
	case c.Rank != c.Root:
		s.send(c.Root, mine)
	default:
		for peer := range c.Size {
			if peer != c.Root {
				s.recv(peer, result(peer))
			}
		}
	}
	s.round()
}

func reduceScatterInOrder(s *Schedule, c *Call) {
	blocks := c.reduced()
	s.combineShare(c, Span{Output, 0, blocks.bytes(c.Rank)}, func(rank int) Span {
		return Span{Input, blocks.before(rank), blocks.bytes(rank)}
	})
}

// scanInOrder has every rank send its vector to all above it.
func scanInOrder(s *Schedule, c *Call) {
	n, vectors := c.bytes(), c.Rank
	if c.Operation == OpScan {
		vectors++
	}
	all := s.scratch(vectors * n)
	slot := func(rank int) Span { return all.part(rank*n, (rank+1)*n) }
	own := Span{Input, 0, n}
	s.someAtATime(c.Rank, c.Size, func(peer int) {
		if peer < c.Rank {
			s.recv(peer, slot(peer))
		}
	}, func(peer int) {
		if peer > c.Rank {
			s.send(peer, own)
		}
	})
	if c.Operation == OpScan {
		s.copy(slot(c.Rank), own)
	}
	if vectors > 0 {
		s.combineAll(Span{Output, 0, n}, all)
	}
	s.round()
}
