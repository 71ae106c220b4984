package mpi

import (
	"fmt"
	"slices"
)

// Group is an ordered set of processes of the job (MPI 4.1, 7.3). A rank of a group is an index into that
// order. Groups are local values: no call on a group communicates, and none changes it.
type Group struct {
	world []int // world rank of each rank of the group
	self  int   // world rank of this process
}

// Comparison is the relation of two groups or communicators (MPI 4.1, 7.3.1 and 7.4.1).
type Comparison int

const (
	Unequal Comparison = iota // different processes
	Similar                   // the same processes in another order
	// communicators: the same processes in the same order, with different message spaces
	Congruent
	Identical // groups: the same processes in the same order; communicators: the same one
)

// Group returns the communicator's ranks as a group.
func (c *Comm) Group() *Group {
	if c == nil || c.commState == nil {
		return &Group{self: NoPeer}
	}
	g := &Group{world: make([]int, c.size), self: c.e.Rank()}
	for rank := range g.world {
		g.world[rank] = c.worldRank(rank)
	}
	return g
}

// Compare compares the communicator with another one (MPI 4.1, 7.4.1). Handles of one communicator are
// Identical.
func (c *Comm) Compare(d *Comm) Comparison {
	if c == nil || d == nil || c.commState == nil || d.commState == nil {
		return Unequal
	}
	if c.commState == d.commState {
		return Identical
	}
	return min(c.Group().Compare(d.Group()), Congruent)
}

// Size returns the number of ranks.
func (g *Group) Size() int { return len(g.ranks()) }

// Rank returns the rank of this process in the group, or Undefined if the process is not in the group.
func (g *Group) Rank() int {
	if g == nil {
		return Undefined
	}
	return indexOr(g.world, g.self, Undefined)
}

// ranks is the order of the group; a nil group is empty.
func (g *Group) ranks() []int {
	if g == nil {
		return nil
	}
	return g.world
}

// with returns a group of other processes.
func (g *Group) with(world []int) *Group {
	self := NoPeer
	if g != nil {
		self = g.self
	}
	return &Group{world: world, self: self}
}

func indexOr(list []int, v, none int) int {
	if i := slices.Index(list, v); i >= 0 {
		return i
	}
	return none
}

// Incl returns the group of these ranks, in this order (MPI 4.1, 7.3.2).
func (g *Group) Incl(ranks ...int) (*Group, error) {
	if err := g.check(ranks); err != nil {
		return nil, asError("Incl", err)
	}
	world := make([]int, len(ranks))
	for i, r := range ranks {
		world[i] = g.world[r]
	}
	return g.with(world), nil
}

// Excl returns the group without these ranks, in its order (MPI 4.1, 7.3.2).
func (g *Group) Excl(ranks ...int) (*Group, error) {
	if err := g.check(ranks); err != nil {
		return nil, asError("Excl", err)
	}
	var world []int
	for r, w := range g.ranks() {
		if !slices.Contains(ranks, r) {
			world = append(world, w)
		}
	}
	return g.with(world), nil
}

// check refuses ranks that the group does not have, and repeated ones.
func (g *Group) check(ranks []int) error {
	seen := make([]bool, g.Size())
	for _, r := range ranks {
		if uint(r) >= uint(len(seen)) {
			return fmt.Errorf("%w: %d; the group has %d ranks", ErrRank, r, len(seen))
		}
		if seen[r] {
			return fmt.Errorf("%w: %d is given twice", ErrRank, r)
		}
		seen[r] = true
	}
	return nil
}

// Union returns the processes of g, then those of h that are not in g (MPI 4.1, 7.3.2).
func (g *Group) Union(h *Group) *Group {
	return g.either(h).with(append(slices.Clone(g.ranks()), h.filter(g, false)...))
}

// Intersection returns the processes of g that are in h, in the order of g (MPI 4.1, 7.3.2).
func (g *Group) Intersection(h *Group) *Group { return g.either(h).with(g.filter(h, true)) }

// Difference returns the processes of g that are not in h, in the order of g (MPI 4.1, 7.3.2).
func (g *Group) Difference(h *Group) *Group { return g.either(h).with(g.filter(h, false)) }

// either is a group that knows this process, if one of the two does.
func (g *Group) either(h *Group) *Group {
	if g == nil || g.self == NoPeer {
		return h
	}
	return g
}

// filter lists the world ranks of g that are in h, or that are not.
func (g *Group) filter(h *Group, in bool) []int {
	var world []int
	for _, w := range g.ranks() {
		if slices.Contains(h.ranks(), w) == in {
			world = append(world, w)
		}
	}
	return world
}

// Translate returns the ranks that processes of g have in another group, and Undefined for a process that is
// not in that group. ProcNull stays ProcNull (MPI 4.1, 7.3.1).
func (g *Group) Translate(ranks []int, to *Group) []int {
	out := make([]int, len(ranks))
	for i, r := range ranks {
		switch {
		case r == ProcNull:
			out[i] = ProcNull
		case uint(r) >= uint(g.Size()):
			out[i] = Undefined
		default:
			out[i] = indexOr(to.ranks(), g.world[r], Undefined)
		}
	}
	return out
}

// Compare reports whether two groups are Identical, Similar or Unequal (MPI 4.1, 7.3.1).
func (g *Group) Compare(h *Group) Comparison {
	switch {
	case slices.Equal(g.ranks(), h.ranks()):
		return Identical
	case slices.Equal(slices.Sorted(slices.Values(g.ranks())), slices.Sorted(slices.Values(h.ranks()))):
		return Similar
	}
	return Unequal
}
