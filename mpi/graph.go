package mpi

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/grid"
)

// Graph is a communicator whose ranks are the vertices of a directed graph (MPI 4.1, 8.5.4).
type Graph struct {
	comm                  *Comm
	sources, destinations []int
}

// Graph makes a graph of all ranks of the communicator (MPI_Dist_graph_create_adjacent). Each rank passes the
// edges of one vertex: the ranks that send to it and those that it sends to, in the order that the neighbor
// collectives use. A rank may be listed several times, and may list itself. Both ends of an edge must list
// it; otherwise all ranks get ErrArg. With reorder, vertices are placed so that neighbors are on the same
// host where possible; a rank may then have the edges that another rank passed.
func (c *Comm) Graph(sources, destinations []int, reorder bool) (*Graph, error) {
	if err := c.check(); err != nil {
		return nil, c.failColl("Graph", err)
	}
	g, err := c.graph(sources, destinations, reorder)
	if err != nil {
		return nil, c.failColl("Graph", err)
	}
	return g, nil
}

// GraphOf makes a Graph of all ranks of the communicator from the ranks that each one sends to, in the order
// that the neighbor collectives use (MPI_Dist_graph_create, where each rank passes its own edges). Sources
// are in ascending order. A rank may be listed several times, and may list itself. GraphOf is collective.
func GraphOf(c *Comm, dests []int) (*Graph, error) {
	var sources []int
	err := ExchangeFunc(c, dests, make([]int, len(dests)), []byte(nil), func(src int, _ []byte) {
		sources = append(sources, src)
	})
	if err != nil {
		return nil, c.failColl("GraphOf", err)
	}
	slices.Sort(sources)
	g, err := c.graph(sources, dests, false)
	if err != nil {
		return nil, c.failColl("GraphOf", err)
	}
	return g, nil
}

func (c *Comm) graph(sources, destinations []int, reorder bool) (*Graph, error) {
	s := c.newCompoundCall()
	edges, err := s.gatherEdges(sources, destinations)
	if err == nil {
		err = edges.check(c)
	}
	if err != nil {
		return nil, err
	}
	order := make([]int, c.size) // the rank of each vertex
	for i := range order {
		order[i] = i
	}
	if reorder {
		hosts, err := s.hosts()
		if err != nil {
			return nil, err
		}
		order = grid.PlaceGraph(edges.both(), hosts)
	}
	child, err := s.finish(order)
	if err != nil {
		return nil, err
	}
	return &Graph{child, edges.sources[child.rank], edges.destinations[child.rank]}, nil
}

// Comm returns the communicator of the graph's ranks.
func (g *Graph) Comm() *Comm { return g.comm }

// WithContext returns another handle to the graph, whose collectives on neighbors end with ctx, as calls of
// Comm.WithContext do.
func (g *Graph) WithContext(ctx context.Context) *Graph {
	return &Graph{g.comm.WithContext(ctx), g.sources, g.destinations}
}

// Sources returns the ranks that send to this one.
func (g *Graph) Sources() []int { return slices.Clone(g.sources) }

// Destinations returns the ranks that this one sends to.
func (g *Graph) Destinations() []int { return slices.Clone(g.destinations) }

func (g *Graph) neighbors() *coll.Neighbors {
	return &coll.Neighbors{Sources: g.sources, Destinations: g.destinations}
}

// edges are the edges of all vertices.
type edges struct{ sources, destinations [][]int }

// gatherEdges gives every rank the edges of all vertices.
func (x *compoundCall) gatherEdges(sources, destinations []int) (edges, error) {
	size := x.size()
	counts := make([]uint64, 2*size)
	if err := x.allgather([]uint64{uint64(len(sources)), uint64(len(destinations))}, counts); err != nil {
		return edges{}, err
	}
	maxEdges := uint64(0)
	for rank := range size {
		maxEdges = max(maxEdges, counts[2*rank]+counts[2*rank+1])
	}
	mine, all := make([]uint64, maxEdges), make([]uint64, int(maxEdges)*size)
	for i, r := range slices.Concat(sources, destinations) {
		mine[i] = uint64(r)
	}
	if err := x.allgather(mine, all); err != nil {
		return edges{}, err
	}
	e := edges{make([][]int, size), make([][]int, size)}
	for rank := range size {
		list := all[rank*int(maxEdges):]
		in, out := int(counts[2*rank]), int(counts[2*rank+1])
		for i, r := range list[:in+out] {
			if i < in {
				e.sources[rank] = append(e.sources[rank], int(r))
			} else {
				e.destinations[rank] = append(e.destinations[rank], int(r))
			}
		}
	}
	return e, nil
}

// check refuses ranks that do not exist, and edges that one end alone names.
func (e edges) check(c *Comm) error {
	type edge struct{ from, to int }
	open := map[edge]int{} // how often the sender has named it more than the receiver
	for v := range e.sources {
		for _, r := range slices.Concat(e.sources[v], e.destinations[v]) {
			if uint(r) >= uint(c.size) {
				return fmt.Errorf("%w: %d, which rank %d names as a neighbor; %s", ErrRank, r, v,
					c.rankRange())
			}
		}
		for _, r := range e.sources[v] {
			open[edge{r, v}]--
		}
		for _, r := range e.destinations[v] {
			open[edge{v, r}]++
		}
	}
	var wrong []edge
	for at, n := range open {
		if n != 0 {
			wrong = append(wrong, at)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	// at all ranks the same
	first := slices.MinFunc(wrong, func(a, b edge) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	if open[first] > 0 {
		return fmt.Errorf("%w: rank %d names %d as a destination more often than %[3]d names %[2]d as a "+
			"source",
			ErrArg, first.from, first.to)
	}
	return fmt.Errorf("%w: rank %d names %d as a source more often than %[3]d names %[2]d as a destination",
		ErrArg, first.to, first.from)
}

// both lists the neighbors of each vertex in either direction.
func (e edges) both() [][]int {
	all := make([][]int, len(e.sources))
	for v := range all {
		all[v] = slices.Concat(e.sources[v], e.destinations[v])
	}
	return all
}
