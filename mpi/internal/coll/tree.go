package coll

import "math/bits"

// tree is a binomial tree over the ranks. Vertices are the ranks numbered from the top on, wrapping around.
// The subtree of v is the vertices v up to v+extent(v), so each subtree is a range, and its blocks are
// contiguous.
type tree struct {
	top, size int
}

func (t tree) vertex(rank int) int {
	return (rank - t.top + t.size) % t.size
}

func (t tree) rank(vertex int) int {
	return (vertex + t.top) % t.size
}

// span returns the distance to the parent, 1 for a leaf: the extent of the subtree if the tree were complete.
// For the top it is the first power of two that is no less than the size.
func (t tree) span(vertex int) int {
	if vertex == 0 {
		return 1 << bits.Len(uint(t.size-1))
	}
	return vertex & -vertex
}

func (t tree) extent(vertex int) int {
	return min(t.span(vertex), t.size-vertex)
}

// holds reports whether the vertices from first up to last are all in the subtree of v.
func (t tree) holds(v, first, last int) bool {
	return v <= first && last <= v+t.extent(v)
}

// wrap returns the first vertex whose rank is lower than the top's. A range of vertices across it is not a
// range of ranks.
func (t tree) wrap() int {
	return t.size - t.top
}

// ranges calls do for the ranges of ranks in the subtree of a child of the top: one, or two if it wraps
// around.
func (t tree) ranges(child int, do func(first, last int)) {
	last := child + t.extent(child)
	if middle := t.wrap(); child < middle && middle < last {
		do(child, middle)
		do(middle, last)
		return
	}
	do(child, last)
}
