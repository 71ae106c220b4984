package coll

// radix is the radix of the k-nomial trees: a parent has up to radix-1 children at each of log(size) levels,
// to the base radix. Fewer levels than those of a binomial tree suit messages that cost the sender little and
// take long to arrive.
const radix = 4

// knomial returns the parent of a vertex, -1 for the top, and the distance of its farthest children.
func knomial(v, size int) (parent, distance int) {
	parent, distance = -1, 1
	for ; distance < size; distance *= radix {
		if digit := v / distance % radix; digit != 0 {
			return v - digit*distance, distance
		}
	}
	return parent, distance
}

// knomialChildren calls do for each child of a vertex, the largest subtrees first.
func knomialChildren(v, distance, size int, do func(child int)) {
	for distance /= radix; distance > 0; distance /= radix {
		for digit := 1; digit < radix; digit++ {
			if child := v + digit*distance; child < size {
				do(child)
			}
		}
	}
}

// bcastKnomial passes the whole buffer down a k-nomial tree.
func bcastKnomial(s *Schedule, c *Call) {
	t := tree{c.Root, c.Size}
	v := t.vertex(c.Rank)
	buf := Span{Output, 0, c.bytes()}
	parent, distance := knomial(v, c.Size)
	if parent >= 0 {
		s.recv(t.rank(parent), buf)
		s.round()
	}
	knomialChildren(v, distance, c.Size, func(child int) { s.send(t.rank(child), buf) })
	s.round()
}
