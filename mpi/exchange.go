package mpi

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/weft-mpi/weft/mpi/internal/value"
)

// Exchange sends to[r] to each rank r in to, and returns what other ranks sent to this one, by rank. No rank
// needs to know who will send to it. It is collective over the communicator: all ranks call it, and a rank
// that sends nothing passes an empty or nil map. An empty slice is a message too, so from has an entry for
// it. A rank may send to itself.
//
// The time depends on the number of messages of a rank and on the logarithm of the number of ranks; it does
// not grow with the number of ranks as that of Alltoallv does. Exchange uses the NBX algorithm (Hoefler,
// Siebert, Lumsdaine, 2010): synchronous sends, then a non-blocking barrier. Between hosts, messages of a
// rank to several ranks of one host travel together, up to 4 KiB at a time, and one of these ranks hands them
// on.
//
// If a rank of the communicator fails, Exchange returns ErrProcFailed at all of its ranks that have not
// completed it; after Revoke it returns ErrRevoked. When the context of the communicator's handle ends, it
// returns the context's error.
func Exchange[T any](c *Comm, to map[int][]T) (from map[int][]T, err error) {
	x, err := takeExchange(c)
	if err != nil {
		return nil, c.failColl("Exchange", err)
	}
	defer x.giveBack()
	for _, rank := range slices.Sorted(maps.Keys(to)) {
		block, err := bytesOf(to[rank])
		if err == nil {
			err = x.add(rank, block)
		}
		if err != nil {
			return nil, c.failColl("Exchange", err)
		}
	}
	x.begin(sizeOf[T](), elementOf[T](c))
	from = map[int][]T{}
	for x.next() {
		from[x.got.origin] = slices.Clone(elementsOf[T](x.got.block))
	}
	if x.err != nil {
		return nil, c.failColl("Exchange", x.err)
	}
	return from, nil
}

// ExchangeFunc is Exchange with memory of the program: buf holds counts[i] elements for each rank dests[i],
// one block after the other, and f is called for each message that arrives, in the order of arrival. data
// belongs to f until it returns. f is called in the goroutine of the caller and must not call collectives on
// c. A rank may be listed several times; its messages arrive in this order. buf must not be changed before
// ExchangeFunc returns. Repeated calls allocate nothing: the communicator keeps the memory that they need.
func ExchangeFunc[T any](c *Comm, dests, counts []int, buf []T, f func(src int, data []T)) error {
	x, err := takeExchange(c)
	if err != nil {
		return c.failColl("ExchangeFunc", err)
	}
	defer x.giveBack()
	if err := addBlocks(x, dests, counts, buf); err != nil {
		return c.failColl("ExchangeFunc", err)
	}
	x.begin(sizeOf[T](), elementOf[T](c))
	for x.next() {
		f(x.got.origin, elementsOf[T](x.got.block))
	}
	return c.failColl("ExchangeFunc", x.err)
}

// ExchangeValues is Exchange of one value for each rank, of any type that SendValue can send.
func ExchangeValues[T any](c *Comm, to map[int]T) (from map[int]T, err error) {
	x, err := takeExchange(c)
	if err != nil {
		return nil, c.failColl("ExchangeValues", err)
	}
	defer x.giveBack()
	for _, rank := range slices.Sorted(maps.Keys(to)) {
		v := to[rank]
		block, err := value.Message(&v)
		if err == nil {
			err = x.add(rank, block)
		}
		if err != nil {
			return nil, c.failColl("ExchangeValues", err)
		}
	}
	x.begin(1, value.Of[T]().Element)
	from = map[int]T{}
	for x.next() {
		var v T
		if err := value.Open(x.got.block, &v); err != nil {
			x.refuse(fmt.Errorf("value of rank %d: %w", x.got.origin, err))
		}
		from[x.got.origin] = v
	}
	if x.err != nil {
		return nil, c.failColl("ExchangeValues", x.err)
	}
	return from, nil
}

// addBlocks cuts a buffer into the blocks for some ranks.
func addBlocks[T any](x *exchangeCall, dests, counts []int, buf []T) error {
	if len(counts) != len(dests) {
		return fmt.Errorf("%w: %d counts for %d ranks", ErrCount, len(counts), len(dests))
	}
	memory, err := bytesOf(buf)
	if err != nil {
		return err
	}
	left := len(buf)
	for i, n := range counts {
		if n < 0 || n > left {
			return fmt.Errorf("%w: %d elements for rank %d, of %d that are left in a buffer of %d", ErrCount,
				n, dests[i], left, len(buf))
		}
		bytes := n * sizeOf[T]()
		if err := x.add(dests[i], memory[:bytes:bytes]); err != nil {
			return err
		}
		left, memory = left-n, memory[bytes:]
	}
	return nil
}

// elementsOf is memory as elements, which it is aligned for.
func elementsOf[T any](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/sizeOf[T]())
}
