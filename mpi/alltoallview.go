package mpi

import (
	"fmt"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
	"github.com/weft-mpi/weft/mpi/internal/layout"
)

// AlltoallView sends the elements of in[i] to rank i, and receives those of out[i] from it (MPI 4.1, 6.8.3,
// MPI_Alltoallw). The length that a rank sends to another must equal the length that the other expects. The
// views of out must not overlap. Except in checking mode, at most 64 KiB of a message are copied to
// contiguous memory at a time.
func AlltoallView[T any](c *Comm, in, out []View[T]) error {
	return c.failColl("AlltoallView", alltoallView(c, in, out))
}

func alltoallView[T any](c *Comm, in, out []View[T]) error {
	var a collectiveCall
	if begin[T](&a, c, coll.OpAlltoallv); a.err != nil {
		return a.err
	}
	if len(in) != c.size || len(out) != c.size {
		return fmt.Errorf("%w: %d views in and %d views out: one of each is needed for each of %d "+
			"ranks", ErrCount, len(in), len(out), c.size)
	}
	b := c.coll.views.Swap(nil)
	if b == nil {
		b = new(viewBlocks)
	}
	defer b.giveBack(&c.coll)
	b.in.resize(len(in))
	for i := range in {
		if err := in[i].err(); err != nil {
			return err
		}
		b.in.set(i, in[i].layout(&b.in.layouts[i]), in[i].base())
	}
	b.out.resize(len(out))
	for i := range out {
		if err := out[i].err(); err != nil {
			return err
		}
		if err := out[i].distinct(); err != nil {
			return err
		}
		b.out.set(i, out[i].layout(&b.out.layouts[i]), out[i].base())
	}
	if in[c.rank].Len() != out[c.rank].Len() {
		return fmt.Errorf("%w: %d elements for this rank itself, room for %d", ErrCount, in[c.rank].Len(),
			out[c.rank].Len())
	}
	if c.checker != nil {
		return packedAlltoall(c, in, out)
	}
	a.call.Staged, a.call.ElemSize = true, 1
	a.call.Send, a.call.Recv, a.views = b.in.lengths(), b.out.lengths(), b
	return a.carryOut()
}

// packedAlltoall copies all elements together, so that what is sent can be checked.
func packedAlltoall[T any](c *Comm, in, out []View[T]) error {
	pack := func(views []View[T]) (buf []T, counts []int) {
		for i := range views {
			n := len(buf)
			buf = append(buf, make([]T, views[i].Len())...)
			views[i].Pack(buf[n:])
			counts = append(counts, views[i].Len())
		}
		return buf, counts
	}
	sent, scounts := pack(in)
	received, rcounts := pack(out)
	a := alltoallv(c, sent, scounts, nil, received, rcounts, nil)
	if a.err != nil {
		return a.err
	}
	if err := a.carryOut(); err != nil {
		return err
	}
	for i := range out {
		received = received[out[i].Unpack(received):]
	}
	return nil
}

// viewBlocks are the views of an AlltoallView.
type viewBlocks struct{ in, out blockList }

func (b *viewBlocks) giveBack(k *collState) {
	b.in.clear()
	b.out.clear()
	k.views.Store(b)
}

// blockList is the memory of one view for each rank.
type blockList struct {
	list           []engine.Block
	layouts        []layout.Layout // of views that say them themselves
	bytes, nowhere []int
	blocks         coll.Blocks
}

// resize makes room for n views.
func (l *blockList) resize(n int) {
	if cap(l.list) < n {
		l.list, l.layouts = make([]engine.Block, n), make([]layout.Layout, n)
		l.bytes, l.nowhere = make([]int, n), make([]int, n)
	}
	l.list, l.layouts, l.bytes, l.nowhere = l.list[:n], l.layouts[:n], l.bytes[:n], l.nowhere[:n]
}

func (l *blockList) set(i int, of *layout.Layout, mem unsafe.Pointer) {
	l.list[i], l.bytes[i] = engine.Block{Layout: of, Memory: mem}, of.Bytes()
}

// lengths are those of the views, whose place is not in one buffer.
func (l *blockList) lengths() *coll.Blocks {
	l.blocks = coll.Blocks{Counts: l.bytes, Displs: l.nowhere, ElemSize: 1}
	return &l.blocks
}

func (l *blockList) clear() {
	clear(l.list)
	clear(l.layouts)
}
