package mpi

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/coll"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// collState is what a communicator keeps for its collectives: they come one after another, so one schedule and one scratch
// memory serve them all.
type collState struct {
	mu       sync.Mutex
	tag      int
	schedule coll.Schedule
	scratch  []uint64 // aligned for every element type
	requests []engine.Request
}

// inPlace marks the slice that InPlace returns: its data pointer is this variable's address.
var inPlace [16]byte

// InPlace stands where MPI_IN_PLACE would: as in, the input is found in out; for Scatter as out, the root's block stays where
// it is.
func InPlace[T any]() []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&inPlace)), 0)
}

func isInPlace[T any](buf []T) bool {
	return unsafe.Pointer(unsafe.SliceData(buf)) == unsafe.Pointer(&inPlace)
}

// Barrier returns when every rank has called it (MPI 4.1, 6.3).
func Barrier(c *Comm) error {
	if err := c.check(); err != nil {
		return c.failColl("Barrier", err)
	}
	s := c.begin()
	defer c.end()
	coll.Barrier(s, c.rank, c.size, c.size > c.job.processors)
	return c.failColl("Barrier", run[byte](c, nil, nil, nil))
}

// Bcast gives every rank what buf holds at root (MPI 4.1, 6.4). All ranks pass the same length.
func Bcast[T any](c *Comm, buf []T, root int) error {
	b, err := bytesOf(buf)
	if err == nil {
		err = c.checkRoot(root)
	}
	if err != nil {
		return c.failColl("Bcast", err)
	}
	s := c.begin()
	defer c.end()
	coll.Bcast(s, c.rank, c.size, root, len(b))
	return c.failColl("Bcast", run[byte](c, nil, b, nil))
}

// Reduce combines in of all ranks, element by element, into out at root (MPI 4.1, 6.9.1). All ranks pass the same length; out is
// used at root alone. in may be InPlace at root.
func Reduce[T any](c *Comm, in, out []T, op Op[T], root int) error {
	err := c.checkRoot(root)
	if err == nil {
		err = checkOp(op)
	}
	atRoot := err == nil && c.rank == root
	if atRoot && isInPlace(in) {
		in = out
	}
	if atRoot && len(in) != len(out) {
		err = fmt.Errorf("%w: %d elements in, room for %d out", ErrCount, len(in), len(out))
	}
	var bin, bout []byte
	if err == nil {
		bin, err = bytesOf(in)
	}
	if err == nil && atRoot {
		bout, err = bytesOf(out)
	}
	if err == nil {
		err = overlap(bin, bout)
	}
	if err != nil {
		return c.failColl("Reduce", err)
	}
	s := c.begin()
	defer c.end()
	coll.Reduce(s, c.rank, c.size, root, len(in), sizeOf[T](), op.commutative)
	return c.failColl("Reduce", run(c, bin, bout, op.apply))
}

// Allreduce combines in of all ranks, element by element, into out at every rank, to the same bits everywhere (MPI 4.1, 6.9.6).
// All ranks pass the same length. in may be InPlace.
func Allreduce[T any](c *Comm, in, out []T, op Op[T]) error {
	err := c.check()
	if err == nil {
		err = checkOp(op)
	}
	if isInPlace(in) {
		in = out
	}
	if err == nil && len(in) != len(out) {
		err = fmt.Errorf("%w: %d elements in, room for %d out", ErrCount, len(in), len(out))
	}
	var bin, bout []byte
	if err == nil {
		bin, err = bytesOf(in)
	}
	if err == nil {
		bout, err = bytesOf(out)
	}
	if err == nil {
		err = overlap(bin, bout)
	}
	if err != nil {
		return c.failColl("Allreduce", err)
	}
	s := c.begin()
	defer c.end()
	coll.Allreduce(s, c.rank, c.size, len(in), sizeOf[T](), op.commutative)
	return c.failColl("Allreduce", run(c, bin, bout, op.apply))
}

// Gather puts the ranks' in, one behind the other in the order of ranks, into out at root (MPI 4.1, 6.5). All ranks pass the
// same length of in; out is used at root alone and is Size times as long. in may be InPlace at root.
func Gather[T any](c *Comm, in, out []T, root int) error {
	err := c.checkRoot(root)
	atRoot := err == nil && c.rank == root
	if atRoot && len(out)%c.size != 0 {
		err = fmt.Errorf("%w: room for %d elements is no multiple of %d ranks", ErrCount, len(out), c.size)
	}
	if err == nil && atRoot {
		block := len(out) / c.size
		if isInPlace(in) {
			in = out[root*block:][:block]
		} else if len(in) != block {
			err = fmt.Errorf("%w: %d elements in, room for %d of each of %d ranks", ErrCount, len(in), block, c.size)
		}
	}
	var bin, bout []byte
	if err == nil {
		bin, err = bytesOf(in)
	}
	if err == nil && atRoot {
		bout, err = bytesOf(out)
	}
	if err != nil {
		return c.failColl("Gather", err)
	}
	s := c.begin()
	defer c.end()
	coll.Gather(s, c.rank, c.size, root, len(bin))
	return c.failColl("Gather", run[byte](c, bin, bout, nil))
}

func (c *Comm) checkRoot(root int) error {
	if err := c.check(); err != nil {
		return err
	}
	if uint(root) >= uint(c.size) {
		return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRoot, root, c.name, c.size-1)
	}
	return nil
}

func checkOp[T any](op Op[T]) error {
	if op.apply == nil {
		return fmt.Errorf("%w: an Op comes from Sum, NewOp and the like", ErrOp)
	}
	return nil
}

// overlap refuses an input that is partly the output: the result would depend on the algorithm. The very same slice is
// taken for InPlace.
func overlap(in, out []byte) error {
	if len(in) == 0 || len(out) == 0 || &in[0] == &out[0] {
		return nil
	}
	i, o := uintptr(unsafe.Pointer(&in[0])), uintptr(unsafe.Pointer(&out[0]))
	if i < o+uintptr(len(out)) && o < i+uintptr(len(in)) {
		return fmt.Errorf("%w: input and output overlap", ErrBuffer)
	}
	return nil
}

func (c *Comm) failColl(op string, err error) error {
	if err == nil {
		return nil
	}
	return c.fail(op, NoPeer, NoPeer, err)
}

// begin takes the communicator's collective state; end gives it back.
func (c *Comm) begin() *coll.Schedule {
	c.coll.mu.Lock()
	c.coll.tag = (c.coll.tag + 1) & TagUB
	return &c.coll.schedule
}

func (c *Comm) end() { c.coll.mu.Unlock() }

// run carries out the communicator's schedule. apply is the operator of its reductions, on elements of type T.
func run[T any](c *Comm, in, out []byte, apply func(inout, in []T)) error {
	defer c.e.Drop(c.e.Hold(in))
	defer c.e.Drop(c.e.Hold(out))
	k := &c.coll
	if words := (k.schedule.Scratch + 7) / 8; len(k.scratch) < words {
		k.scratch = make([]uint64, words)
	}
	memory := [3][]byte{coll.Input: in, coll.Output: out}
	if len(k.scratch) > 0 {
		memory[coll.Scratch] = unsafe.Slice((*byte)(unsafe.Pointer(&k.scratch[0])), 8*len(k.scratch))
	}
	at := func(s coll.Span) []byte { return memory[s.Buf][s.Off:][:s.Len:s.Len] }
	if err := c.scope.Err(); err != nil {
		return err
	}
	for i := range k.schedule.Rounds() {
		steps := k.schedule.Round(i)
		n, err := c.exchange(steps, at)
		if err != nil {
			return err
		}
		for _, s := range steps[n:] {
			dst, src := at(s.Dst), at(s.Src)
			switch s.Kind {
			case coll.Copy:
				copy(dst, src)
			case coll.ReduceRight:
				apply(elements[T](dst), elements[T](src))
			case coll.ReduceLeft:
				apply(elements[T](src), elements[T](dst))
				copy(dst, src)
			}
		}
	}
	return nil
}

// exchange carries out the messages at the head of a round and returns how many steps that were.
func (c *Comm) exchange(steps []coll.Step, at func(coll.Span) []byte) (int, error) {
	if n := single(steps); n > 0 && c.scope == nil {
		return n, c.exchangeOne(steps[:n], at)
	}
	k := &c.coll
	k.requests = k.requests[:0]
	var first error
	n := 0
	for ; n < len(steps) && steps[n].Kind <= coll.Recv && first == nil; n++ {
		s := steps[n]
		var r engine.Request
		var err error
		if s.Kind == coll.Recv {
			r, err = c.e.Irecv(c.context+1, at(s.Dst), c.worldRank(s.Peer), k.tag, 1)
		} else {
			r, err = c.e.Isend(c.context+1, at(s.Src), c.worldRank(s.Peer), k.tag)
		}
		if err != nil {
			first = err
			break
		}
		c.e.Bind(r, c.scope)
		k.requests = append(k.requests, r)
	}
	for i, r := range k.requests {
		if first != nil && c.scope.Err() != nil {
			c.e.Wait(r) // it was given up as well: its buffer is quiet then
			continue
		}
		if first != nil {
			c.e.Abandon(r) // what would answer it may never come
			continue
		}
		st, err := c.e.Wait(r)
		if err == nil && steps[i].Kind == coll.Recv && st.Bytes != steps[i].Dst.Len {
			err = lengthDiffers(&steps[i], st.Bytes)
		}
		first = err
	}
	return n, first
}

// singleMost is the size of a message up to which a rank may wait for its leaving before it receives: it is copied, and no rank waits in a circle.
const singleMost = 512

// single is the number of steps of a round's messages if they are one receive at most and one small send at most; else 0.
func single(steps []coll.Step) int {
	n := 0
	for n < len(steps) && steps[n].Kind <= coll.Recv {
		n++
	}
	switch {
	case n == 1 && (steps[0].Kind == coll.Recv || steps[0].Src.Len <= singleMost):
		return 1
	case n == 2 && steps[0].Kind == coll.Recv && steps[1].Kind == coll.Send && steps[1].Src.Len <= singleMost:
		return 2
	}
	return 0
}

// exchangeOne carries out the messages of a round that single has found: by the short ways of the blocking calls.
func (c *Comm) exchangeOne(steps []coll.Step, at func(coll.Span) []byte) error {
	k := &c.coll
	if s := &steps[len(steps)-1]; s.Kind == coll.Send {
		if err := c.e.Send(c.context+1, at(s.Src), c.worldRank(s.Peer), k.tag); err != nil {
			return err
		}
	}
	s := &steps[0]
	if s.Kind != coll.Recv {
		return nil
	}
	buf, src := at(s.Dst), c.worldRank(s.Peer)
	bytes, ok := c.e.RecvNext(c.context+1, buf, src, k.tag)
	if !ok {
		st, err := c.e.Recv(c.context+1, buf, src, k.tag, 1)
		if err != nil {
			return err
		}
		bytes = st.Bytes
	}
	if bytes != s.Dst.Len {
		return lengthDiffers(s, bytes)
	}
	return nil
}

func lengthDiffers(s *coll.Step, bytes int) error {
	return fmt.Errorf("%w: rank %d sent %d bytes where %d belong: the ranks' arguments differ", ErrCount, s.Peer, bytes, s.Dst.Len)
}

// elements are the elements that b holds; it is aligned and a whole number of them.
func elements[T any](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}
