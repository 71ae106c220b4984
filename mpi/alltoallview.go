package mpi

import (
	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// AlltoallView sends the elements of in[i] to rank i, and receives those of out[i] from it (MPI 4.1, 6.8.3,
// MPI_Alltoallw). The length that a rank sends to another must equal the length that the other expects. The
// views of out must not overlap. At most 64 KiB of a message are copied to contiguous memory at a time.
func AlltoallView[T any](c *Comm, in, out []View[T]) error {
	b := c.takeViews()
	defer c.giveBackViews(b)
	return run(alltoallView(c, b, in, out))
}

// IalltoallView begins an AlltoallView (MPI 4.1, 6.12). Until the request is complete, the elements of out
// must not be accessed, and those of in must not be changed. weft uses the slices of views only during the
// call.
func IalltoallView[T any](c *Comm, in, out []View[T]) (Request, error) {
	return startCall(alltoallView(c, new(viewBlocks), in, out))
}

// AlltoallViewInit sets up an AlltoallView that can be started repeatedly (MPI 4.1, 6.13).
func AlltoallViewInit[T any](c *Comm, in, out []View[T]) (*Persistent, error) {
	return setUp(alltoallView(c, new(viewBlocks), in, out))
}

func alltoallView[T any](c *Comm, b *viewBlocks, in, out []View[T]) (a collectiveCall) {
	begin[T](&a, c, coll.OpAlltoallv)
	a.name = "AlltoallView"
	if a.err == nil && (len(in) != c.size || len(out) != c.size) {
		a.fail(ErrCount, "%d views in and %d views out: one of each is needed for each of %d ranks", len(in),
			len(out), c.size)
	}
	viewBuffers(&a, b, in, out)
	if a.err == nil && in[c.rank].Len() != out[c.rank].Len() {
		a.fail(ErrCount, "%d elements for this rank itself, room for %d", in[c.rank].Len(), out[c.rank].Len())
	}
	return a
}

// NeighborAlltoallView sends the elements of in[i] to neighbor i, and receives those of out[i] from it, in
// the order that Topology describes (MPI 4.1, 8.6.3, MPI_Neighbor_alltoallw). Lengths, overlaps and memory
// are as in AlltoallView. The views of a neighbor that does not exist are neither read nor written.
func NeighborAlltoallView[T any](t Topology, in, out []View[T]) error {
	return run(neighborAlltoallView(t, in, out))
}

// IneighborAlltoallView begins a NeighborAlltoallView (MPI 4.1, 8.7). Until the request is complete, the
// elements of out must not be accessed, and those of in must not be changed. weft uses the slices of views
// only during the call.
func IneighborAlltoallView[T any](t Topology, in, out []View[T]) (Request, error) {
	return startCall(neighborAlltoallView(t, in, out))
}

// NeighborAlltoallViewInit sets up a NeighborAlltoallView that can be started repeatedly (MPI 4.1, 8.8).
func NeighborAlltoallViewInit[T any](t Topology, in, out []View[T]) (*Persistent, error) {
	return setUp(neighborAlltoallView(t, in, out))
}

func neighborAlltoallView[T any](t Topology, in, out []View[T]) (a collectiveCall) {
	onNeighbors[T](&a, t, coll.OpNeighborAlltoallv)
	a.name = "NeighborAlltoallView"
	if sources, destinations := a.degrees(); len(in) != destinations || len(out) != sources {
		a.fail(ErrCount, "%d views in for %d neighbors to send to, %d views out for %d to receive from",
			len(in), destinations, len(out), sources)
	}
	viewBuffers(&a, new(viewBlocks), in, out)
	if a.err != nil {
		return a
	}
	for i, k := range a.call.Neighbors.Own(a.call.Rank) {
		if in[i].Len() != out[k].Len() {
			a.fail(ErrCount, "%d elements for neighbor %d, which is this rank itself, room for %d from "+
				"neighbor %d", in[i].Len(), i, out[k].Len(), k)
		}
	}
	return a
}

// viewBuffers sets the buffers of a call: a block for each view.
func viewBuffers[T any](a *collectiveCall, b *viewBlocks, in, out []View[T]) {
	if a.err != nil {
		return
	}
	for i := range out {
		if a.err = out[i].distinct(); a.err != nil {
			return
		}
	}
	checked := a.comm.checker != nil
	if a.err = setViews(&b.in, in, checked); a.err == nil {
		a.err = setViews(&b.out, out, checked)
	}
	a.call.Bounced, a.call.ElemSize = true, 1
	a.call.Send, a.call.Recv, a.views = b.in.lengths(), b.out.lengths(), b
}

// viewBlocks are the views of a call.
type viewBlocks struct{ in, out blockList }

// takeViews returns a viewBlocks for a blocking call.
func (c *Comm) takeViews() *viewBlocks {
	if c != nil && c.commState != nil {
		if b := c.coll.views.Swap(nil); b != nil {
			return b
		}
	}
	return new(viewBlocks)
}

func (c *Comm) giveBackViews(b *viewBlocks) {
	if c != nil && c.commState != nil {
		b.in.clear()
		b.out.clear()
		c.coll.views.Store(b)
	}
}

// blockList has the views that are the blocks of a call.
type blockList struct {
	list          []engine.Block
	layouts       []layout.Layout // built for views without one
	bytes, places []int
	blocks        coll.Blocks
	pieces        [][]byte // the memory in order, in checking mode
}

// setViews sets the blocks.
func setViews[T any](l *blockList, views []View[T], checked bool) error {
	l.resize(len(views))
	for i := range views {
		if err := views[i].err(); err != nil {
			return err
		}
		of := views[i].layout(&l.layouts[i])
		l.list[i], l.bytes[i] = engine.Block{Layout: of, Memory: views[i].base()}, of.Bytes()
		l.places[i] = len(views) - 1 - i // see engine.Collective
		if checked {
			l.pieces = append(l.pieces, views[i].pieces()...)
		}
	}
	return nil
}

// resize makes room for n views.
func (l *blockList) resize(n int) {
	if cap(l.list) < n {
		l.list, l.layouts = make([]engine.Block, n), make([]layout.Layout, n)
		l.bytes, l.places = make([]int, n), make([]int, n)
	}
	l.list, l.layouts, l.bytes, l.places = l.list[:n], l.layouts[:n], l.bytes[:n], l.places[:n]
}

// lengths describes the blocks by their lengths and indices.
func (l *blockList) lengths() *coll.Blocks {
	l.blocks = coll.Blocks{Counts: l.bytes, Displs: l.places, ElemSize: 1}
	return &l.blocks
}

func (l *blockList) clear() {
	clear(l.list)
	clear(l.layouts)
	l.pieces = nil
}
