package mpi

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"github.com/weft-mpi/weft/internal/contextid"
	"github.com/weft-mpi/weft/mpi/internal/check"
	"github.com/weft-mpi/weft/mpi/internal/engine"
)

// Exchange sends to[r] to each rank r in to, and returns what other ranks sent to this one, by rank. No rank
// needs to know who will send to it. It is collective over the communicator: all ranks call it, and a rank
// that sends nothing passes an empty or nil map. An empty slice is a message too, so from has an entry for
// it. A rank may send to itself.
//
// The time depends on the number of messages of a rank and on the logarithm of the number of ranks; it does
// not grow with the number of ranks as that of Alltoallv does. Exchange uses the NBX algorithm (Hoefler,
// Siebert, Lumsdaine, 2010): synchronous sends, then a non-blocking barrier.
func Exchange[T any](c *Comm, to map[int][]T) (from map[int][]T, err error) {
	dests := slices.Sorted(maps.Keys(to))
	blocks := make([][]byte, len(dests))
	for i, rank := range dests {
		if blocks[i], err = bytesOf(to[rank]); err != nil {
			return nil, c.failColl("Exchange", err)
		}
	}
	from = map[int][]T{}
	err = exchange(c, dests, blocks, sizeOf[T](), elementOf[T](c), func(src int, b []byte) error {
		from[src] = slices.Clone(elementsOf[T](b))
		return nil
	})
	if err != nil {
		return nil, c.failColl("Exchange", err)
	}
	return from, nil
}

// ExchangeFunc is Exchange with memory of the program: buf holds counts[i] elements for each rank dests[i],
// one block after the other, and f is called for each message that arrives, in the order of arrival. data
// belongs to f until it returns. f is called in the goroutine of the caller and must not call collectives on
// c. A rank may be listed several times; its messages arrive in this order. buf must not be changed before
// ExchangeFunc returns.
func ExchangeFunc[T any](c *Comm, dests, counts []int, buf []T, f func(src int, data []T)) error {
	blocks, err := blocksOf(dests, counts, buf)
	if err == nil {
		err = exchange(c, dests, blocks, sizeOf[T](), elementOf[T](c), func(src int, b []byte) error {
			f(src, elementsOf[T](b))
			return nil
		})
	}
	return c.failColl("ExchangeFunc", err)
}

// ExchangeValues is Exchange of one value for each rank, of any type that SendValue can send.
func ExchangeValues[T any](c *Comm, to map[int]T) (from map[int]T, err error) {
	const valueWordBytes = 8 // say of which type a value is
	t := valueTypeOf[T]()
	dests := slices.Sorted(maps.Keys(to))
	blocks := make([][]byte, len(dests))
	for i, rank := range dests {
		v := to[rank]
		if blocks[i], err = encode(&v, valueWordBytes); err != nil {
			return nil, c.failColl("ExchangeValues", err)
		}
		binary.LittleEndian.PutUint64(blocks[i], uint64(t.word))
	}
	from = map[int]T{}
	err = exchange(c, dests, blocks, 1, t.element, func(src int, b []byte) (err error) {
		var v T
		if len(b) < valueWordBytes {
			err = fmt.Errorf("%w: %d bytes are no value", ErrType, len(b))
		} else if err = t.check(valueWord(binary.LittleEndian.Uint64(b)), reflect.TypeFor[T]()); err == nil {
			err = decode(b[valueWordBytes:], &v)
		}
		if err != nil {
			return fmt.Errorf("value of rank %d: %w", src, err)
		}
		from[src] = v
		return nil
	})
	if err != nil {
		return nil, c.failColl("ExchangeValues", err)
	}
	return from, nil
}

// blocksOf cuts a buffer into the blocks for some ranks.
func blocksOf[T any](dests, counts []int, buf []T) ([][]byte, error) {
	if len(counts) != len(dests) {
		return nil, fmt.Errorf("%w: %d counts for %d ranks", ErrCount, len(counts), len(dests))
	}
	blocks := make([][]byte, len(dests))
	rest := buf
	for i, n := range counts {
		if n < 0 || n > len(rest) {
			return nil, fmt.Errorf("%w: %d elements for rank %d, of %d that are left in a buffer of %d",
				ErrCount, n, dests[i], len(rest), len(buf))
		}
		var err error
		if blocks[i], err = bytesOf(rest[:n]); err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return blocks, nil
}

// elementsOf is memory as elements, which it is aligned for.
func elementsOf[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}

const (
	// A message of an exchange has its length, and its bytes if these are few enough. Otherwise they follow
	// in a message of their own, which the receiver has memory for then.
	exchangeHead   = 8
	exchangeInline = 4 << 10
)

// exchangeCall is an exchange at one rank. A send is complete when its receiver has matched it. A rank whose
// sends are complete begins a barrier; when that is complete, so are all sends of all ranks, and nothing can
// come any more.
type exchangeCall struct {
	c           *Comm
	elem        int
	take        func(src int, b []byte) error
	heads, rest engine.GroupCall
	barrierTag  int      // every rank counts the barrier, whether it comes to it or not
	head        []uint64 // memory of the next message
	operations  []exchangeOperation
	pending     [exchangeKinds]int // operations, by kind
	state       exchangeState
}

type exchangeState uint8

const (
	exchangeSending   exchangeState = iota // initial; left when all sends of this rank are complete
	exchangeInBarrier                      // left when the sends of all ranks are
	exchangeOver                           // no message can come; bytes of those that came may be missing
)

// exchangeOperation is a request of an exchange, and what it is for.
type exchangeOperation struct {
	h    engine.Request
	kind exchangeKind
	src  int    // of a rest
	into []byte // of a rest
}

type exchangeKind uint8

const (
	exchangeSend    exchangeKind = iota // a message of this rank
	exchangeReceive                     // the next message from any rank
	exchangeRest                        // the bytes of a message that has come
	exchangeBarrier                     // begun when all sends are complete
	exchangeKinds
)

// exchange sends blocks of elements of a size to some ranks, and gives take what comes. An error of take does
// not end the exchange, as other ranks wait for this one.
func exchange(c *Comm, dests []int, blocks [][]byte, elem int, element *check.Element,
	take func(src int, b []byte) error) error {
	if err := c.check(); err != nil {
		return err
	}
	for _, rank := range dests {
		if uint(rank) >= uint(c.size) {
			return fmt.Errorf("%w: %d; %s has ranks 0 to %d", ErrRank, rank, c.Name(), c.size-1)
		}
	}
	x := exchangeCall{c: c, elem: max(1, elem), head: make([]uint64, (exchangeHead+exchangeInline)/8)}
	var taken error
	x.take = func(src int, b []byte) error {
		if err := take(src, b); taken == nil {
			taken = err
		}
		return nil
	}
	context := contextid.Collective.In(c.context)
	x.heads = engine.GroupCall{Context: context, Tag: c.nextTag()}
	x.rest = engine.GroupCall{Context: context, Tag: c.nextTag()}
	b := barrier(c)
	x.barrierTag = b.nextTag()
	err := c.compareCompound(noRoot, "", element)
	if err == nil {
		err = c.canceller.Err()
	}
	if err != nil {
		return err
	}
	for _, g := range []*engine.GroupCall{&x.heads, &x.rest} {
		if err := c.e.BeginGroupCall(g); err != nil {
			return err
		}
		defer c.e.EndGroupCall(g)
	}
	if err := x.run(dests, blocks); err != nil {
		x.giveUp()
		return err
	}
	return taken
}

func (x *exchangeCall) run(dests []int, blocks [][]byte) error {
	if err := x.receive(); err != nil {
		return err
	}
	heads := make([]byte, exchangeHead*len(dests))
	for i, rank := range dests {
		if rank == x.c.rank {
			if err := x.take(rank, blocks[i]); err != nil {
				return err
			}
			continue
		}
		if err := x.send(rank, heads[exchangeHead*i:][:exchangeHead:exchangeHead], blocks[i]); err != nil {
			return err
		}
	}
	for {
		if x.state == exchangeSending && x.pending[exchangeSend] == 0 {
			if err := x.barrier(); err != nil {
				return err
			}
			x.state = exchangeInBarrier
		}
		if err := x.step(); err != nil {
			return err
		}
		if x.state == exchangeOver && x.pending[exchangeRest] == 0 {
			x.giveUp() // the receive that nothing will come for
			return nil
		}
	}
}

// begun adds an operation that the engine has begun.
func (x *exchangeCall) begun(o exchangeOperation, err error) error {
	if err != nil {
		return err
	}
	x.c.e.Bind(o.h, x.c.canceller)
	at := len(x.operations)
	if o.kind == exchangeReceive {
		at = 0 // a message that has come is taken before the end of the barrier, which it precedes
	}
	x.operations = slices.Insert(x.operations, at, o)
	x.pending[o.kind]++
	if err := x.c.e.GroupCallErr(&x.heads); err != nil {
		return err
	}
	return x.c.e.GroupCallErr(&x.rest)
}

func (x *exchangeCall) send(rank int, head, block []byte) error {
	binary.LittleEndian.PutUint64(head, uint64(len(block)))
	inline := block
	if len(block) > exchangeInline {
		inline = nil
	}
	e, to := x.c.e, x.c.worldRank(rank)
	h, err := e.IssendVec(x.heads.Context, [][]byte{head, inline}, to, x.heads.Tag)
	err = x.begun(exchangeOperation{h: h, kind: exchangeSend}, err)
	if err != nil || len(inline) == len(block) {
		return err
	}
	h, err = e.Isend(x.rest.Context, block, to, x.rest.Tag)
	return x.begun(exchangeOperation{h: h, kind: exchangeSend}, err)
}

// receive begins to receive the next message.
func (x *exchangeCall) receive() error {
	h, err := x.c.e.Irecv(x.heads.Context, wordBytes(x.head), AnySource, x.heads.Tag, 1)
	return x.begun(exchangeOperation{h: h, kind: exchangeReceive}, err)
}

func (x *exchangeCall) barrier() error {
	b := barrier(x.c)
	if b.err != nil {
		return b.err
	}
	collective := x.c.e.NewCollective()
	b.plan(collective)
	b.fill(collective, x.barrierTag)
	h, err := x.c.e.StartCollective(collective)
	return x.begun(exchangeOperation{h: h, kind: exchangeBarrier}, err)
}

// step waits until an operation is complete, and does what follows from it.
func (x *exchangeCall) step() (err error) {
	var o exchangeOperation
	var st engine.Status
	x.c.e.WaitSome(len(x.operations), func(i int) engine.Request { return x.operations[i].h }, 1,
		func(i int, s *engine.Status, failure error) {
			o, st, err = x.operations[i], *s, failure
			x.operations[i].h = engine.Request{}
		})
	x.operations = slices.DeleteFunc(x.operations, func(o exchangeOperation) bool {
		return o.h == engine.Request{}
	})
	x.pending[o.kind]--
	if err != nil {
		return err
	}
	switch o.kind {
	case exchangeReceive:
		err = x.came(x.c.localRank(st.Source), wordBytes(x.head)[:st.Bytes])
		if err == nil {
			err = x.receive()
		}
	case exchangeRest:
		if st.Bytes != len(o.into) {
			return fmt.Errorf("%w: rank %d sent %d bytes and announced %d", ErrCount, o.src, st.Bytes,
				len(o.into))
		}
		err = x.take(o.src, o.into)
	case exchangeBarrier:
		x.state = exchangeOver
	}
	return err
}

// came takes a message: its bytes, or the announcement of them.
func (x *exchangeCall) came(src int, message []byte) error {
	if len(message) < exchangeHead {
		return fmt.Errorf("%w: a message of %d bytes from rank %d in an exchange", ErrCount, len(message),
			src)
	}
	n := binary.LittleEndian.Uint64(message)
	inline := message[exchangeHead:]
	switch {
	case n%uint64(x.elem) != 0:
		return fmt.Errorf("%w: rank %d sent %d bytes, which are no whole number of elements of %d bytes",
			ErrType, src, n, x.elem)
	case n == uint64(len(inline)):
		return x.take(src, inline)
	case len(inline) > 0 || n > math.MaxInt/2:
		return fmt.Errorf("%w: rank %d announced %d bytes and sent %d", ErrCount, src, n, len(inline))
	}
	into := wordBytes(make([]uint64, (n+7)/8))[:n:n]
	h, err := x.c.e.Irecv(x.rest.Context, into, x.c.worldRank(src), x.rest.Tag, 1)
	return x.begun(exchangeOperation{h: h, kind: exchangeRest, src: src, into: into}, err)
}

// giveUp ends what is still under way. After the end of a context every request has ended or does so at once.
func (x *exchangeCall) giveUp() {
	for _, o := range x.operations {
		x.c.e.CancelAndFree(o.h)
	}
	x.operations = nil
}
