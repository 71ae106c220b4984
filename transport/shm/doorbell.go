package shm

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/weft-mpi/weft/internal/sys"
)

// doorbell is a notification bitmap in shared memory: peers set a bit in it to tell a completion queue which
// of its queue pairs have work. It lies in the arena of the queue's device. The bit of a queue pair is its
// slot.
type doorbell struct {
	summary uint64 // which words have bits set
	_       [7]uint64

	sleeping uint64 // 1: the peer that rings clears it and wakes the queue's poller
	_        [7]uint64

	words [64]uint64
}

// maxSlots is the maximum number of queue pairs of one completion queue.
const maxSlots = 64 * 64

var _ [blockSize - unsafe.Sizeof(doorbell{})]struct{}

// ringDoorbell sets a queue pair's bit in a peer's queue; by is a poller of this end. Earlier stores are
// visible to the peer when it finds the bit. The bit may be set already, and is not set again then, so a
// fence comes first.
func (f *peerQueue) ringDoorbell(by *sys.Poller) {
	word, bit := &f.words[f.slot/64], uint64(1)<<(f.slot%64)
	in := uint64(1) << (f.slot / 64)
	sys.FullBarrier()
	if atomic.LoadUint64(word)&bit == 0 {
		atomic.OrUint64(word, bit)
	}
	if atomic.LoadUint64(&f.summary)&in == 0 {
		atomic.OrUint64(&f.summary, in)
	}
	if atomic.LoadUint64(&f.sleeping) != 0 && atomic.SwapUint64(&f.sleeping, 0) != 0 {
		by.Signal(f.wake)
	}
}

// pending reports whether a bit is set.
func (b *doorbell) pending() bool { return atomic.LoadUint64(&b.summary) != 0 }

// each clears the bits and calls f for each slot that was set.
func (b *doorbell) each(f func(slot int)) {
	for words := atomic.SwapUint64(&b.summary, 0); words != 0; words &= words - 1 {
		w := bits.TrailingZeros64(words)
		for set := atomic.SwapUint64(&b.words[w], 0); set != 0; set &= set - 1 {
			f(w*64 + bits.TrailingZeros64(set))
		}
	}
}
