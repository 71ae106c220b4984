package coll

// A pipeline passes a long vector from rank to rank in segments, so that a rank sends one segment while it
// receives the next. It takes as many rounds as there are segments and levels of the tree, and each rank
// sends the vector once to each child.

const (
	// segmentMax is the longest segment, in bytes. The next level begins when it has one, so shorter segments
	// fill the pipeline sooner, and longer ones take fewer messages. In shared memory, eager messages cost so
	// little that segments are no longer than those.
	segmentMax       = 64 << 10
	segmentSharedMax = eagerMax
	// segmentsMin is the minimum number of segments of a vector with enough elements: with fewer there is
	// little to overlap.
	segmentsMin = 8
)

// segments cuts a vector.
type segments struct{ count, elemSize, length int } // length in elements

func newSegments(c *Call, count, elemSize int) segments {
	longest := segmentMax
	if c.Fabric == Shared {
		longest = segmentSharedMax
	}
	length := min((count+segmentsMin-1)/segmentsMin, longest/max(elemSize, 1))
	return segments{count, elemSize, max(length, 1)}
}

// number returns the number of segments: one for an empty vector, so that it has a message.
func (g segments) number() int { return max((g.count+g.length-1)/g.length, 1) }

func (g segments) of(p Span, i int) Span {
	return p.part(min(i*g.length, g.count)*g.elemSize, min((i+1)*g.length, g.count)*g.elemSize)
}

// bcastPipelined passes the buffer down a tree in which vertex v has radix children from radix*v+1 on: a
// chain if radix is 1.
func bcastPipelined(s *Schedule, c *Call, radix int) {
	t := tree{c.Root, c.Size}
	v := t.vertex(c.Rank)
	buf := Span{Output, 0, c.bytes()}
	g := newSegments(c, c.bytes(), 1)
	n := g.number()
	if c.Size == 1 {
		return
	}
	for i := range n + 1 {
		if v != 0 && i < n {
			s.recv(t.rank((v-1)/radix), g.of(buf, i))
		}
		sent := i - 1 // received in the round before
		if v == 0 {
			sent = i
		}
		for child := radix*v + 1; child <= radix*v+radix && child < c.Size; child++ {
			if 0 <= sent && sent < n {
				s.send(t.rank(child), g.of(buf, sent))
			}
		}
		s.round()
	}
}

// reducePipelined passes the vector along a chain towards its top, and each rank combines its own elements
// with those from the ranks after it. With rank 0 at the top the rank order is kept, and rank 0 sends the
// result to the root.
func reducePipelined(s *Schedule, c *Call) {
	t := tree{0, c.Size}
	if c.Commutative {
		t.top = c.Root
	}
	v := t.vertex(c.Rank)
	bytes := c.bytes()
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	if c.Size == 1 {
		s.copy(result, input)
		s.round()
		return
	}
	g := newSegments(c, c.Count, c.ElemSize)
	n := g.number()
	last := v == c.Size-1
	if !last && c.Rank != c.Root {
		result = s.scratch(bytes)
	}
	if last {
		for i := range n {
			s.send(t.rank(v-1), g.of(input, i))
		}
		s.round()
	} else {
		received := s.scratch(g.length * c.ElemSize)
		for i := range n + 1 {
			in := g.of(result, min(i, n-1))
			got := received.part(0, in.Len)
			if i < n {
				s.recv(t.rank(v+1), got)
			}
			if i > 0 && v != 0 {
				s.send(t.rank(v-1), g.of(result, i-1))
			}
			if i < n {
				s.copy(in, g.of(input, i))
				s.reduce(in, got, false)
			}
			s.round()
		}
	}
	if top := t.rank(0); top != c.Root {
		switch c.Rank {
		case top:
			s.send(c.Root, result)
		case c.Root:
			s.recv(top, Span{Output, 0, bytes})
		}
		s.round()
	}
}

// scanChain passes the combination of the lower ranks from rank to rank, in segments.
func scanChain(s *Schedule, c *Call) {
	bytes := c.bytes()
	input, result := Span{Input, 0, bytes}, Span{Output, 0, bytes}
	g := newSegments(c, c.Count, c.ElemSize)
	n := g.number()
	received := s.scratch(g.length * c.ElemSize)
	for i := range n + 1 {
		in := g.of(result, min(i, n-1))
		got := received.part(0, in.Len)
		if c.OwnRight {
			got = in
		}
		if i < n && c.Rank > 0 {
			s.recv(c.Rank-1, got)
		}
		if i > 0 && c.Rank < c.Size-1 {
			s.send(c.Rank+1, g.of(result, i-1))
		}
		switch {
		case i == n:
		case c.Rank > 0 && c.OwnRight:
			s.reduce(in, g.of(input, i), false)
		default:
			s.copy(in, g.of(input, i))
			if c.Rank > 0 {
				s.reduce(in, got, true)
			}
		}
		s.round()
	}
}
